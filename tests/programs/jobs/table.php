<?php
// Two arrays with string keys: filled, read in a scattered order, joined, sorted. PHP loads its
// extensions with RTLD_DEEPBIND.
$count = 400000;
$text = [];
for ($i = 0; $i < $count; ++$i) {
    $text["key $i"] = str_repeat(chr(97 + $i % 26), 40 + $i % 80) . $i;
}
$sum = 0;
for ($i = 0; $i < $count; ++$i) {
    $at = ($i * 7919) % $count;
    $sum = ($sum * 31 + strlen($text["key $at"]) + ord($text["key $at"][3])) % 1000003;
}
echo "sum $sum\n";
$rows = [];
foreach ($text as $key => $value) {
    $rows[] = [substr($value, -4), $key, strlen($value)];
}
sort($rows);
$hash = hash_init('sha256');
foreach ($rows as $row) {
    hash_update($hash, implode(',', $row));
}
echo hash_final($hash), "\n";
preg_match_all('/b(\d+)/', implode(' ', $text), $found);
echo count($found[0]), ' ', md5(implode($found[1])), "\n";
