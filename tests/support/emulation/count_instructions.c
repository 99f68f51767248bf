/* A plugin of QEMU that counts how often each instruction of a program runs.
 *
 * `qemu-aarch64 -plugin count_instructions.so,out=FILE PROGRAM` writes lines of a count, a tab and
 * the instruction as text. Debian has no qemu-plugin.h: what is needed of it is declared here.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Block Block;
typedef struct Instruction Instruction;

extern size_t qemu_plugin_tb_n_insns(const Block *);
extern Instruction *qemu_plugin_tb_get_insn(const Block *, size_t);
extern char *qemu_plugin_insn_disas(const Instruction *);
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t, void (*)(uint64_t, Block *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(Block *, void (*)(unsigned, void *), int, void *);
extern void qemu_plugin_register_atexit_cb(uint64_t, void (*)(uint64_t, void *), void *);

int qemu_plugin_version = 1;

/* A translated block: how often it ran, and its instructions. */
typedef struct Counted {
  struct Counted *next;
  uint64_t count;
  size_t length;
  char *texts[];
} Counted;

static Counted *blocks;
static const char *out;

static void count(unsigned processor, void *block) {
  (void)processor;
  ((Counted *)block)->count++;
}

static void translate(uint64_t plugin, Block *block) {
  (void)plugin;
  size_t length = qemu_plugin_tb_n_insns(block);
  Counted *counted = malloc(sizeof *counted + length * sizeof(char *));
  if (!counted) abort();
  *counted = (Counted){blocks, 0, length};
  for (size_t at = 0; at < length; at++)
    counted->texts[at] = qemu_plugin_insn_disas(qemu_plugin_tb_get_insn(block, at));
  blocks = counted;
  qemu_plugin_register_vcpu_tb_exec_cb(block, count, 0, counted);
}

static void write_counts(uint64_t plugin, void *data) {
  (void)plugin, (void)data;
  FILE *file = fopen(out, "w");
  if (!file) abort();
  for (const Counted *block = blocks; block; block = block->next)
    for (size_t at = 0; block->count && at < block->length; at++)
      fprintf(file, "%llu\t%s\n", (unsigned long long)block->count, block->texts[at]);
  fclose(file);
}

int qemu_plugin_install(uint64_t plugin, const void *info, int count_words, char **words) {
  (void)info;
  for (int at = 0; at < count_words; at++)
    if (!strncmp(words[at], "out=", 4)) out = strdup(words[at] + 4);
  if (!out) return 1;
  qemu_plugin_register_vcpu_tb_trans_cb(plugin, translate);
  qemu_plugin_register_atexit_cb(plugin, write_counts, NULL);
  return 0;
}
