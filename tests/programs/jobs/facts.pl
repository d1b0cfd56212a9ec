% Facts with an index on the first argument, asked in a scattered order, collected and sorted.
% (A file for SWI-Prolog.)
:- dynamic item/3.
:- set_prolog_flag(stack_limit, 2000000000).

count(500000).

fill(N, N) :- !.
fill(I, N) :- Owner is I * 48271 mod 65521, atom_concat(name_, I, Name),
  assertz(item(I, Name, Owner)), J is I + 1, fill(J, N).

sum(N, N, Sum, Sum) :- !.
sum(I, N, Before, Sum) :- At is I * 7919 mod N, item(At, Name, Owner), atom_length(Name, Length),
  Next is (Before * 31 + Length + Owner) mod 1000003, J is I + 1, sum(J, N, Next, Sum).

fold([], Sum, Sum).
fold([Owner-I | Rest], Before, Sum) :- Next is (Before * 33 + Owner + I) mod 1000003,
  fold(Rest, Next, Sum).

main :- count(N), fill(0, N), sum(0, N, 0, Sum), writeln(Sum),
  findall(Owner-I, item(I, _, Owner), Rows), sort(0, @>=, Rows, Sorted), fold(Sorted, 0, Folded),
  writeln(Folded), sum(0, N, 0, Again), writeln(Again).
