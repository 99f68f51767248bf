#define _GNU_SOURCE
#include "files.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "sha256.h"

enum { DIGITS = 64, LONGEST_PATH = 4096 };
static const char LIST[] = "SHA256SUMS";

autopipe_status map_file(const char *folder, const char *name, mapped_file *file) {
  char path[LONGEST_PATH];
  *file = (mapped_file){0};
  if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
    return fail(AUTOPIPE_INVALID_ARGUMENT, "the path of %s is too long", name);
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe does not wait */
  if (descriptor < 0) return fail(AUTOPIPE_INVALID_FILE, "%s: %s", path, strerror(errno));
  struct stat about;
  autopipe_status status = AUTOPIPE_OK;
  if (fstat(descriptor, &about) || !S_ISREG(about.st_mode)) {
    status = fail(AUTOPIPE_INVALID_FILE, "%s: not a regular file", path);
  } else if (about.st_size > 0) {
    void *data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) {
      status = fail(AUTOPIPE_OUT_OF_MEMORY, "%s: %s", path, strerror(errno));
    } else {
      *file = (mapped_file){data, (size_t)about.st_size};
      madvise(data, file->size, MADV_HUGEPAGE); /* large pages, if the system has such of files */
    }
  }
  close(descriptor);
  return status;
}

void unmap_file(mapped_file *file) {
  if (file->data) munmap((void *)file->data, file->size);
  *file = (mapped_file){0};
}

/* Reads "<64 digits>  <name>\n" at `*at`; returns 1 and moves on, 0 at the end, -1 for anything else. */
static int read_line(const mapped_file *list, size_t *at, char digest[65], char name[256]) {
  const char *start = list->data + *at, *end = list->size > *at ? memchr(start, '\n', list->size - *at) : NULL;
  if (*at == list->size) return 0;
  if (!end || end - start < DIGITS + 3 || end - start > DIGITS + 2 + 255) return -1;
  size_t length = (size_t)(end - start) - DIGITS - 2;
  memcpy(digest, start, DIGITS);
  memcpy(name, start + DIGITS + 2, length);
  digest[DIGITS] = name[length] = 0;
  *at += (size_t)(end - start) + 1;
  return strstr(name, "..") || name[0] == '/' ? -1 : 1;
}

static autopipe_status compare_digest(const char *folder, const char *name, const char *stated) {
  mapped_file file;
  char found[65];
  autopipe_status status = map_file(folder, name, &file);
  if (status) return status;
  sha256_hex(file.data, file.size, found);
  unmap_file(&file);
  if (!strcmp(stated, found)) return AUTOPIPE_OK;
  return fail(AUTOPIPE_INVALID_FILE, "%s/%s: damaged, its SHA-256 is not that of %s", folder, name, LIST);
}

autopipe_status check_digests(const char *folder) {
  mapped_file list;
  char stated[65], name[256];
  autopipe_status status = map_file(folder, LIST, &list);
  size_t at = 0;
  int more = 0;
  while (!status && (more = read_line(&list, &at, stated, name)) > 0) status = compare_digest(folder, name, stated);
  if (!status && (more < 0 || !at)) status = fail(AUTOPIPE_INVALID_FILE, "%s/%s: not a list of digests", folder, LIST);
  unmap_file(&list);
  return status;
}

static int has_segments(const mapped_file *file) {
  Elf64_Ehdr header;
  Elf64_Phdr segment;
  if (file->size < sizeof header) return 0;
  memcpy(&header, file->data, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof segment) return 0;
  size_t listed = (size_t)header.e_phnum * sizeof segment;
  if (header.e_phoff > file->size || listed > file->size - header.e_phoff) return 0;
  for (size_t i = 0; i < header.e_phnum; i++) {
    memcpy(&segment, file->data + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_offset > file->size || segment.p_filesz > file->size - segment.p_offset) return 0;
  }
  return 1;
}

static autopipe_status compare_library(const char *folder, const char *name, const char *stated) {
  mapped_file file;
  autopipe_status status = map_file(folder, name, &file);
  if (!status && !has_segments(&file)) status = fail(AUTOPIPE_INVALID_FILE, "%s/%s: not a shared library, or cut off", folder, name);
  unmap_file(&file);
  return status ? status : compare_digest(folder, name, stated);
}

static autopipe_status find_digest(const char *folder, const char *name, char stated[65]) {
  mapped_file list;
  char listed[256];
  autopipe_status status = map_file(folder, LIST, &list);
  if (status) return status;
  size_t at = 0;
  int more;
  while ((more = read_line(&list, &at, stated, listed)) > 0 && strcmp(listed, name));
  unmap_file(&list);
  return more > 0 ? AUTOPIPE_OK : fail(AUTOPIPE_INVALID_FILE, "%s/%s does not list %s", folder, LIST, name);
}

autopipe_status check_library(const char *folder, const char *name) {
  char stated[65];
  autopipe_status status = find_digest(folder, name, stated);
  return status ? status : compare_library(folder, name, stated);
}

autopipe_status check_libraries(const char *folder) {
  mapped_file list;
  char stated[65], name[256];
  autopipe_status status = map_file(folder, LIST, &list);
  for (size_t at = 0; !status && read_line(&list, &at, stated, name) > 0;) {
    const char *end = strrchr(name, '.');
    if (end && !strcmp(end, ".so") && !strchr(name, '/')) status = compare_library(folder, name, stated);
  }
  unmap_file(&list);
  return status;
}

autopipe_status has_stated_digest(const char *folder, const char *name, const char *path, int *is_same) {
  char stated[65], found[65];
  mapped_file file;
  autopipe_status status = find_digest(folder, name, stated);
  if (!status) status = map_file("", path, &file);
  if (status) return status;
  sha256_hex(file.data, file.size, found);
  unmap_file(&file);
  *is_same = !strcmp(stated, found);
  return AUTOPIPE_OK;
}
