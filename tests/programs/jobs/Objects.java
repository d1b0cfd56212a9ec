// A map of objects in Java's own heap, which is reserved without access first, and is tiered.
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;

class Objects {
  record Row(int number, String text, double[] prices) {}

  static final int COUNT = 700000;

  static long sum(HashMap<Integer, Row> table) {
    long total = 0;
    for (long i = 0; i < COUNT; ++i) {
      Row row = table.get((int) (i * 7919 % COUNT));
      total = (total * 31 + row.number + row.text.length() + (long) row.prices[1]) % 1000003;
    }
    return total;
  }

  public static void main(String[] arguments) {
    HashMap<Integer, Row> table = new HashMap<>();
    for (int i = 0; i < COUNT; ++i) {
      String text = "name of " + (i * 48271L % 65521);
      table.put(i, new Row(i, text, new double[] {i, i * 1.5, i % 7}));
    }
    System.out.println(sum(table));
    ArrayList<Row> rows = new ArrayList<>(table.values());
    rows.sort(Comparator.comparing(Row::text).thenComparing(Row::number));
    long total = 0;
    for (Row row : rows) {
      total = (total * 33 + row.number) % 1000003;
    }
    System.out.println(total);
    for (int i = 0; i < COUNT; i += 3) {
      table.put(i, new Row(i, "changed", new double[] {i, i * 2.5}));
    }
    System.gc();
    System.out.println(sum(table));
  }
}
