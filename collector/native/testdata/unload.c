/* unload.c LIBRARY: a plugin's life. The recorder is loaded, used on a thread, and
 * closed while that thread lives; the thread ends later. Then once more. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#define LAGGARD_NO_INLINE 1
#include "laggard.h"

static void (*begin)(laggard_range *, int, const laggard_attr *);
static void (*end)(laggard_range *);
static pthread_barrier_t recorded, closed;

static void *worker(void *p) {
	laggard_range r;
	laggard_attr a = LAGGARD_ATTR_INIT;
	a.value = (int64_t)(intptr_t)p;
	begin(&r, LAGGARD_FP, &a);
	end(&r);
	pthread_barrier_wait(&recorded);
	pthread_barrier_wait(&closed);
	return NULL; /* gives its ring back: in code that must still be there */
}

int main(int argc, char **argv) {
	if (argc != 2)
		return 2;
	pthread_barrier_init(&recorded, NULL, 2);
	pthread_barrier_init(&closed, NULL, 2);
	for (intptr_t i = 0; i < 10; i++) {
		pthread_t id;
		void *lib = dlopen(argv[1], RTLD_NOW);
		if (!lib) {
			puts(dlerror());
			return 1;
		}
		*(void **)&begin = dlsym(lib, "laggard_begin");
		*(void **)&end = dlsym(lib, "laggard_end");
		if (!begin || !end || pthread_create(&id, NULL, worker, (void *)i) != 0)
			return 1;
		pthread_barrier_wait(&recorded);
		if (dlclose(lib) != 0)
			return 1;
		pthread_barrier_wait(&closed);
		pthread_join(id, NULL);
	}
	return 0;
}
