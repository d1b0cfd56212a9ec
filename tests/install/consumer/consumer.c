/* A stranger's C program: the installed header and the exported functions. */
#include <stdio.h>
#include <string.h>
#include <tiermem.h>

int main(void) {
  printf("%s\n", tm_status_name(TM_NO_CAPACITY));
  return strcmp(tm_status_name(TM_NO_CAPACITY), "no_capacity") == 0 ? 0 : 1;
}
