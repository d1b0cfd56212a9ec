// The library that front.c precedes.
int layers(void);
int layers(void) {
  return 1;
}
