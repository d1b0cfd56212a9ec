// Typed arrays of 600 MiB together: V8 allocates them outside its heap, by calloc. (The heap itself
// is reserved in pieces below 4 MiB, and so is not tiered.)
'use strict';
const {createHash} = require('crypto');

const COUNT = 75;
const LENGTH = 1 << 20; // Doubles: 8 MiB each.
const arrays = [];
let state = 6;
for (let i = 0; i < COUNT; ++i) {
  const array = new Float64Array(LENGTH);
  for (let j = 0; j < LENGTH; ++j) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    array[j] = state / 4294967296;
  }
  arrays.push(array);
}
// Each array gets something of another one, near and far.
for (let round = 0; round < 2; ++round) {
  for (let i = 0; i < COUNT; ++i) {
    const from = arrays[(i * 31 + round) % COUNT];
    const to = arrays[i];
    for (let j = 0; j < LENGTH; ++j) to[j] = to[j] * 0.5 + from[LENGTH - 1 - j] * 0.5;
  }
}
for (const array of arrays) array.sort();
const hash = createHash('sha256');
for (const array of arrays) hash.update(Buffer.from(array.buffer));
console.log(hash.digest('hex'));
