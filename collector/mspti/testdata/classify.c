/* classify.c: answers what a name says, for names on stdin: u32 length of the name, of
 * the domain, u32 instant, both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mspti_name.h"

static void text(const char *s) {
	uint32_t n = (uint32_t)strlen(s);
	fwrite(&n, 4, 1, stdout);
	fwrite(s, 1, n, stdout);
}

int main(void) {
	uint32_t head[3];
	while (fread(head, 4, 3, stdin) == 3) {
		char *name = malloc(head[0] + 1), *domain = malloc(head[1] + 1); /* exact: a read beyond is seen */
		mspti_what *w = malloc(sizeof *w);
		name[fread(name, 1, head[0], stdin)] = 0;
		domain[fread(domain, 1, head[1], stdin)] = 0;
		mspti_classify(name, domain, (int)head[2], w);
		int64_t numbers[5] = {w->kind, w->dtype, w->peer, w->count, w->step};
		fwrite(numbers, 8, 5, stdout);
		text(w->text);
		text(w->group);
		fflush(stdout);
		free(name);
		free(domain);
		free(w);
	}
	return 0;
}
