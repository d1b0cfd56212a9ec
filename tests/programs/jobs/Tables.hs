-- Maps in the space of GHC's copying collector, which is reserved at once (1 TiB of addresses).
module Main where

import Data.Bits (xor)
import qualified Data.IntMap.Strict as IntMap
import Data.List (foldl')
import qualified Data.Map.Strict as Map

count :: Int
count = 400000

main :: IO ()
main = do
  let rows = IntMap.fromList [(i, (i * 48271 `mod` 65521, show i)) | i <- [0 .. count - 1]]
      total table = foldl' (\sum i -> let (owner, text) = table IntMap.! (i * 7919 `mod` count)
                                      in (sum * 31 + owner + length text) `mod` 1000003) 0
                           [0 .. count `div` 16]
  print (total rows)
  let names = Map.fromList [((owner, text), i) | (i, (owner, text)) <- IntMap.toList rows]
  print (foldl' (\sum i -> (sum * 33 + i) `mod` 1000003) 0 (Map.elems names))
  let changed = IntMap.map (\(owner, text) -> (owner `xor` 5, text)) rows
  print (total changed)
  print (total rows)
