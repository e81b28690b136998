/* module.c: the extension _laggard, the way of a Python range from begin to its slot.
 *
 * The recorder of collector/native writes the slots: its files are included here,
 * as are the other files of this folder, so that the compiler sees the whole way. What happens rarely (the folder, the identity, strings, threads that
 * come and go) stays in Python, see recorder.py; this file stands where process.c
 * and rings.c stand in liblaggard.so.
 *
 * Everything here runs with the GIL held, so no Python code of a signal handler
 * runs in the middle of it. A range is an object out of a free list: between begin
 * and end nothing is allocated but the bound methods that CPython makes. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stddef.h>
#include <structmember.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "crc.c"
#include "clock.c"
#include "laggard.c"

#ifndef LAGGARD_STAMP
#define LAGGARD_STAMP ""
#endif

enum { FREE_RANGES = 64, WORDS = 64, MOST_WORDS = 1000 };
enum { SLOT_UNLISTED = -1, SLOT_OFF = -2 }; /* as in ring.py */

static _Atomic uint32_t unstarted_word = 0x14; /* no agent writes it, nothing is on in it */
_Atomic(_Atomic uint32_t *) laggard_poll = &unstarted_word;
_Atomic uint32_t laggard_quiet = UNKNOWN_WORD;
static unsigned char *process; /* the mapping of our file `process` */
static ring *shared;           /* for what ends in another thread than it began in */
static int stopped;            /* nothing is recorded any more in this process */

/* What Python does for us, given to connect(). */
static PyObject *do_attach, *do_ready, *do_share, *do_word, *do_span, *do_communication;
static PyObject *ids, *dtypes, *known_words; /* string → id, name → code, word → kind | id << 8 */
static PyObject *name_op, *name_group, *name_count, *name_dtype, *name_peer, *name_automatic;

typedef struct Range {
	PyObject_HEAD
	laggard_range range;
	laggard_attr attr;
	int kind;
	int64_t number; /* of the step, where the range knows better than the process; else -1 */
	struct Range *next; /* of what a backward pass has issued, see operation.c */
	int64_t done;       /* when that was complete; 0 not yet */
	PyObject *device; /* events of a range on an accelerator, see device.py; NULL is None */
} Range;

typedef struct Ring {
	PyObject_HEAD
	ring ring;
	Py_buffer view;
	unsigned number;
} Ring;

static PyTypeObject RangeType, RingType;

/* ---- what laggard.c asks for ---- */

uint32_t laggard_follow(thread *t) {
	uint32_t w = atomic_load(atomic_load(&laggard_poll));
	if (process && atomic_load((_Atomic uint32_t *)(void *)(process + P_FOLLOWED)) != w) {
		atomic_store((_Atomic uint64_t *)(void *)(process + P_FOLLOWED_AT), (uint64_t)(monotonic() + laggard_offset));
		atomic_store((_Atomic uint32_t *)(void *)(process + P_FOLLOWED), w);
	}
	t->followed = w;
	return w;
}

ring *laggard_get_ring(thread *t, int64_t at) {
	(void)t;
	(void)at;
	return NULL; /* rings are attached before a range begins */
}

void laggard_lose(int kind) {
	if (process)
		add64(process + P_LOST + 8 * (kind < 0 || kind >= KINDS ? 0 : kind));
}

#include "range.c"
#include "make.c"
#include "pyring.c"
#include "inside.c"
#include "operation.c"

/* ---- the process ---- */

static PyObject *state_step(PyObject *self, void *unused) {
	(void)self;
	(void)unused;
	return PyLong_FromUnsignedLong(current_step());
}

static int state_set_step(PyObject *self, PyObject *value, void *unused) {
	unsigned long n = value ? PyLong_AsUnsignedLongMask(value) : NO_STEP;
	(void)self;
	(void)unused;
	if (PyErr_Occurred())
		return -1;
	atomic_store_explicit(&laggard_step, (uint32_t)n, memory_order_relaxed);
	return 0;
}

static PyGetSetDef state_fields[] = {
	{"step", state_step, state_set_step, "number of the current step", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject StateType = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "_laggard.State",
	.tp_doc = "The current step, as every thread sees it.",
	.tp_basicsize = sizeof(PyObject),
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.tp_new = PyType_GenericNew,
	.tp_getset = state_fields,
};

/* connect(attach, ready, share, word, span, communication, ids, dtypes) */
static PyObject *connect_(PyObject *self, PyObject *args) {
	PyObject *f[8];
	PyObject **to[8] = {&do_attach, &do_ready, &do_share, &do_word, &do_span, &do_communication, &ids, &dtypes};
	(void)self;
	if (!PyArg_ParseTuple(args, "OOOOOOO!O!:connect", &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &PyDict_Type, &f[6], &PyDict_Type, &f[7]))
		return NULL;
	for (int i = 0; i < 8; i++) {
		PyObject *old = *to[i];
		Py_INCREF(f[i]);
		*to[i] = f[i];
		Py_XDECREF(old);
	}
	Py_RETURN_NONE;
}

/* started(mapping): the process has a folder; the switch is in it. */
static PyObject *started(PyObject *self, PyObject *mapping) {
	static Py_buffer view; /* never released: the agent's words are read there */
	(void)self;
	if (PyObject_GetBuffer(mapping, &view, PyBUF_WRITABLE) < 0)
		return NULL;
	if (view.len < PROCESS_SIZE) {
		PyBuffer_Release(&view);
		PyErr_SetString(PyExc_ValueError, "not the file process");
		return NULL;
	}
	process = view.buf;
	atomic_store(&laggard_poll, (_Atomic uint32_t *)(void *)(process + P_WANTED));
	Py_RETURN_NONE;
}

static PyObject *stop(PyObject *self, PyObject *unused) {
	(void)self;
	(void)unused;
	stopped = 1;
	laggard_self.ring = NULL;
	Py_RETURN_NONE;
}

static PyObject *py_now(PyObject *self, PyObject *unused) {
	(void)self;
	(void)unused;
	return PyLong_FromLongLong(laggard_now());
}

/* after_fork leaves the parent's files alone. It runs at every fork, also where
 * Python is not told of it. */
static void after_fork(void) {
	laggard_epoch++;
	atomic_store(&laggard_poll, &unstarted_word);
	process = NULL;
	shared = NULL;
	memset(&current, 0, sizeof current);
	memset(&inside, 0, sizeof inside);
	reduced = NULL;
	memset(&laggard_self, 0, sizeof laggard_self);
	laggard_self.followed = UNKNOWN_WORD;
}

static PyMethodDef functions[] = {
	{"span", (PyCFunction)(void (*)(void))make_span, METH_FASTCALL | METH_KEYWORDS,
	 "span(kind, tokens=0, path=\"\")\n--\n\nReturns a context manager that records a range of this kind.\n\n"
	 "kind is FP, DataLoader, SaveCheckpoint, Step, Communication or any other word."},
	{"communication", (PyCFunction)(void (*)(void))make_communication, METH_FASTCALL | METH_KEYWORDS,
	 "communication(op, group=\"\", count=0, dtype=\"\", peer=-1)\n--\n\n"
	 "Returns a context manager that records a blocking collective or transfer."},
	{"begin_elsewhere", begin_elsewhere, METH_O, "Begins a range that may end in any thread."},
	{"elsewhere", end_elsewhere, METH_VARARGS, "Publishes a range in the shared ring."},
	{"connect", connect_, METH_VARARGS, "Takes what Python does for us."},
	{"started", started, METH_O, "The process has a folder: this is its file."},
	{"stop", stop, METH_NOARGS, "Nothing is recorded any more in this process."},
	{"now", py_now, METH_NOARGS, "Returns ns since the Unix epoch."},
	{"follow_operations", follow_operations, METH_VARARGS, "Takes what operations.py knows."},
	{"hooks", make_hooks, METH_VARARGS, "Returns a process group's two hooks, which stand before those in Python."},
	{"blocked", blocked, METH_O, "Returns the range that a wait for this Work ends, or None."},
	{"unblock", unblock, METH_NOARGS, "Ends what this thread has issued and nobody waits for."},
	{"share_out", py_share_out, METH_NOARGS, "Ends what C++ has issued in this thread's backward pass, and waited for."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "_laggard", "The recorder's hot path.", -1, functions, NULL, NULL, NULL, NULL,
};

static int ready_names(void) {
	return (known_words = PyDict_New()) && (name_op = PyUnicode_InternFromString("op")) &&
	       (name_group = PyUnicode_InternFromString("group")) && (name_count = PyUnicode_InternFromString("count")) &&
	       (name_dtype = PyUnicode_InternFromString("dtype")) && (name_peer = PyUnicode_InternFromString("peer")) &&
	       (name_automatic = PyUnicode_InternFromString("automatic"));
}

PyMODINIT_FUNC PyInit__laggard(void);
PyMODINIT_FUNC PyInit__laggard(void) {
	PyObject *m;
	if (PyType_Ready(&RangeType) < 0 || PyType_Ready(&RingType) < 0 || PyType_Ready(&StateType) < 0 || PyType_Ready(&InsideType) < 0 || !ready_names())
		return NULL;
	if (PyDict_SetItemString(RangeType.tp_dict, "automatic", Py_False) < 0)
		return NULL;
	PyType_Modified(&RangeType);
	laggard_crc_init();
	laggard_clock_init();
	if (pthread_atfork(NULL, NULL, after_fork) != 0)
		return PyErr_NoMemory();
	if (!(m = PyModule_Create(&definition)))
		return NULL;
	Py_INCREF(&RangeType);
	Py_INCREF(&RingType);
	Py_INCREF(&StateType);
	Py_INCREF(&InsideType);
	if (PyModule_AddObject(m, "Range", (PyObject *)&RangeType) < 0 || PyModule_AddObject(m, "Ring", (PyObject *)&RingType) < 0 ||
	    PyModule_AddObject(m, "State", (PyObject *)&StateType) < 0 || PyModule_AddObject(m, "Inside", (PyObject *)&InsideType) < 0 ||
	    PyModule_AddStringConstant(m, "STAMP", LAGGARD_STAMP) < 0) {
		Py_DECREF(m);
		return NULL;
	}
	return m;
}
