(* A hash table of records and a balanced tree of strings. *)
module Tree = Map.Make (String)

type row = { number : int; text : string; mutable price : float }

let count = 500_000
let table : (int, row) Hashtbl.t = Hashtbl.create count

let sum () =
  let total = ref 0 in
  for i = 0 to (count / 16) - 1 do
    let row = Hashtbl.find table (i * 7919 mod count) in
    total := ((!total * 31) + row.number + String.length row.text + int_of_float row.price) mod 1000003
  done;
  !total

let () =
  for i = 0 to count - 1 do
    let text = Printf.sprintf "%08d name of %d" (i * 48271 mod 65521) i in
    Hashtbl.replace table i { number = i; text; price = float_of_int (i mod 997) }
  done;
  Printf.printf "%d\n" (sum ());
  let tree = Hashtbl.fold (fun key row tree -> Tree.add row.text key tree) table Tree.empty in
  Printf.printf "%d\n" (Tree.fold (fun _ key total -> ((total * 33) + key) mod 1000003) tree 0);
  Hashtbl.iter (fun key row -> if key mod 3 = 0 then row.price <- row.price *. 2.) table;
  Gc.full_major ();
  Printf.printf "%d\n" (sum ())
