/* mspti_load.c: where libmspti is and what it has; words on stderr, numbers out of the
 * environment. */
#include "mspti_load.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "laggard_mspti.h"
#include "mspti_abi.h"
#include "mspti_old.h"

COLD void mspti_say(const char *format, ...) {
	char line[512];
	va_list args;
	int n = snprintf(line, sizeof line, "laggard[%d]: mspti: ", (int)getpid());
	va_start(args, format);
	n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
	va_end(args);
	if (n > (int)sizeof line - 2)
		n = (int)sizeof line - 2;
	line[n++] = '\n';
	ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
	(void)ignored;
}

long mspti_env(const char *name, long least, long most, long absent) {
	const char *s = getenv(name);
	char *end;
	if (!s || !*s)
		return absent;
	long v = strtol(s, &end, 10);
	return *end || v < least || v > most ? absent : v;
}

void *mspti_open_library(void) {
	static const char *const where[] = {
		"libmspti.so", "/usr/local/Ascend/cann/lib64/libmspti.so", "/usr/local/Ascend/ascend-toolkit/latest/lib64/libmspti.so",
	};
	const char *given = getenv("LAGGARD_MSPTI_LIBRARY");
	if (given && *given)
		return dlopen(given, RTLD_NOW | RTLD_GLOBAL);
	for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
		void *h = dlopen(where[i], RTLD_NOW | RTLD_GLOBAL);
		if (h)
			return h;
	}
	return NULL;
}

/* resolve looks the symbols up and says in one line which are missing. */
void mspti_resolve(void *library, mspti_api *api) {
	static const char *const names[] = {
		"msptiActivityRegisterCallbacks", "msptiActivityEnable", "msptiActivityDisable",
		"msptiActivityGetNextRecord", "msptiActivityFlushAll", "msptiActivityEnableMarkerDomain",
		"msptiActivityDisableMarkerDomain", "msptiSubscribe", "msptiUnsubscribe",
	};
	void **to[] = {
		(void **)(void *)&api->register_callbacks, (void **)(void *)&api->enable, (void **)(void *)&api->disable,
		(void **)(void *)&api->next_record, (void **)(void *)&api->flush_all, (void **)(void *)&api->enable_domain,
		(void **)(void *)&api->disable_domain, (void **)(void *)&api->subscribe, (void **)(void *)&api->unsubscribe,
	};
	char missing[400] = "";
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		void *p = dlsym(library, names[i]);
		memcpy(to[i], &p, sizeof p);
		size_t n = strlen(missing);
		if (!p)
			snprintf(missing + n, sizeof missing - n, "%s%s", n ? ", " : "", names[i]);
	}
	if (*missing)
		mspti_say("libmspti has no %s: what needs it is left out", missing);
}
