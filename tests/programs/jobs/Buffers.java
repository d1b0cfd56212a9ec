// Direct buffers of 640 MiB together: allocated by malloc, outside of the Java heap.
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.security.MessageDigest;

class Buffers {
  static final int COUNT = 40;
  static final int LONGS = 1 << 21;  // 16 MiB each.

  public static void main(String[] arguments) throws Exception {
    ByteBuffer[] bytes = new ByteBuffer[COUNT];
    LongBuffer[] longs = new LongBuffer[COUNT];
    long state = 7;
    for (int i = 0; i < COUNT; ++i) {
      bytes[i] = ByteBuffer.allocateDirect(LONGS * 8).order(ByteOrder.LITTLE_ENDIAN);
      longs[i] = bytes[i].asLongBuffer();
      for (int j = 0; j < LONGS; ++j) {
        state = state * 6364136223846793005L + 1442695040888963407L;
        longs[i].put(j, state);
      }
    }
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < COUNT; ++i) {
        LongBuffer from = longs[(i * 17 + round) % COUNT];
        LongBuffer to = longs[i];
        for (int j = 0; j < LONGS; ++j) {
          to.put(j, Long.rotateLeft(to.get(j), 7) ^ from.get(LONGS - 1 - j));
        }
      }
    }
    MessageDigest digest = MessageDigest.getInstance("SHA-256");
    for (ByteBuffer buffer : bytes) {
      digest.update(buffer);
    }
    for (byte value : digest.digest()) {
      System.out.printf("%02x", value);
    }
    System.out.println();
  }
}
