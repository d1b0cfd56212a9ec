// What front.c stands before.
int layers(void);
int layers(void) {
  return 1;
}
