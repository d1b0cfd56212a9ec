# A hash of 1.2 million strings, and children of a large process in Perl's three ways: fork with a
# pipe (the child reads the hash), system(), and a command in backticks.
use strict;
use warnings;

my $count = 1_200_000;
my %text;
$text{"key $_"} = sprintf("%s %d", "value " x 24, $_ * 48271 % 65521) for 1 .. $count;

sub sum {
  my $sum = 0;
  $sum = ($sum * 31 + length($text{"key $_"}) + substr($text{"key $_"}, -3)) % 1_000_003
      for map { $_ * 7919 % $count + 1 } 0 .. $count - 1;
  return $sum;
}

$| = 1;
print "parent ", sum(), "\n";
my $child = open(my $pipe, '-|') // die "fork: $!";
if ($child == 0) {
  $text{"key $_"} = "changed 007" for 1 .. 1000;
  print "child ", sum(), "\n";
  exit 0;
}
print "said $_" while <$pipe>;
close($pipe) or die "the child: $?";
system('echo from system') == 0 or die "system: $?";
print "backticks ", `echo from backticks`;
print "parent ", sum(), "\n";
