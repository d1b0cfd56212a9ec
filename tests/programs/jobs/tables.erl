%% A table of terms beside the heaps of 200 processes, which answer one after the other.
-module(tables).
-export([main/0]).

main() ->
    Count = 400000,
    Table = ets:new(table, [set]),
    lists:foreach(fun(I) -> ets:insert(Table, {I, integer_to_list(I * 48271 rem 65521), I * 1.5}) end,
                  lists:seq(0, Count - 1)),
    io:format("~w~n", [sum(Table, 0, Count, 0)]),
    Workers = [spawn_link(fun() -> worker([{N, J, <<N:64, J:64>>} || J <- lists:seq(1, 3000)]) end)
               || N <- lists:seq(1, 200)],
    lists:foreach(fun(Round) ->
                      io:format("~w~n", [lists:foldl(fun(Worker, Sum) ->
                          Worker ! {self(), Round},
                          receive {Worker, Part} -> (Sum * 31 + Part) rem 1000003 end
                      end, 0, Workers)])
                  end, lists:seq(1, 3)),
    io:format("~w~n", [sum(Table, 0, Count, 0)]).

worker(Terms) ->
    receive
        {From, Round} ->
            Part = lists:foldl(fun({N, J, Bytes}, Sum) ->
                                   (Sum + N * J * Round + byte_size(Bytes)) rem 1000003
                               end, 0, Terms),
            From ! {self(), Part},
            worker(lists:reverse(Terms))
    end.

sum(_, Count, Count, Sum) -> Sum;
sum(Table, I, Count, Sum) ->
    [{Key, Text, _}] = ets:lookup(Table, I * 7919 rem Count),
    sum(Table, I + 1, Count, (Sum * 31 + Key + length(Text)) rem 1000003).
