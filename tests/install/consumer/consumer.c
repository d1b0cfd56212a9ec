/* A stranger's C program: the installed header and the exported functions. */
#include <stdio.h>
#include <string.h>
#include <tiermem.h>

int main(void) {
  tm_context* context = NULL;
  void* object = NULL;
  printf("%s\n", tm_status_name(TM_NO_CAPACITY));
  if (strcmp(tm_status_name(TM_NO_CAPACITY), "no_capacity") != 0 ||
      tm_context_create("dram=16M; nvme=off", NULL, &context) != TM_OK ||
      tm_malloc(context, (tm_place){TM_DRAM, 0}, 100, &object) != TM_OK) {
    return 1;
  }
  memset(object, 1, 100);
  return tm_free_ptr(context, object) == TM_OK && tm_context_destroy(context, 0, -1) == TM_OK ? 0 : 1;
}
