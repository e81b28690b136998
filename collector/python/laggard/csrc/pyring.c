/* pyring.c: the writing end of a ring file as a Python object. Included by module.c. */

static int ring_init(Ring *g, PyObject *args, PyObject *kwargs) {
	static char *names[] = {"mapping", "number", "light", "bulk", NULL};
	PyObject *mapping;
	unsigned number, light, bulk;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OIII:Ring", names, &mapping, &number, &light, &bulk))
		return -1;
	if (g->view.obj) {
		PyErr_SetString(PyExc_RuntimeError, "a ring is made once");
		return -1;
	}
	if (PyObject_GetBuffer(mapping, &g->view, PyBUF_WRITABLE) < 0)
		return -1;
	if (!light || !bulk || light & (light - 1) || bulk & (bulk - 1) ||
	    (uint64_t)g->view.len != RING_HEADER + (uint64_t)SLOT_SIZE * ((uint64_t)light + bulk)) {
		PyBuffer_Release(&g->view);
		PyErr_SetString(PyExc_ValueError, "the file has another size than its slots");
		return -1;
	}
	unsigned char *m = g->view.buf;
	unsigned slots[2] = {light, bulk};
	size_t at = RING_HEADER;
	g->number = number;
	g->ring.mem = m;
	g->ring.size = (size_t)g->view.len;
	for (int i = 0; i < 2; i++) {
		lane l = {0, 0, slots[i] - 1, (uint64_t *)(void *)(m + at),
			  (_Atomic uint64_t *)(void *)(m + (i ? R_BULK_HEAD : R_LIGHT_HEAD)),
			  (_Atomic uint64_t *)(void *)(m + (i ? R_BULK_TAIL : R_LIGHT_TAIL))};
		g->ring.lanes[i] = l;
		at += (size_t)SLOT_SIZE * slots[i];
	}
	Py_INCREF(g); /* ranges point at it: it stays for the life of the process */
	return 0;
}

static void ring_dealloc(Ring *g) { Py_TYPE(g)->tp_free((PyObject *)g); } /* only one that was never made */

/* ring_adopt makes it the calling thread's. One that still holds another thread's
 * slots says thread 0: the agent could not tell whose they are. */
static PyObject *ring_adopt(Ring *g, PyObject *unused) {
	thread *t = &laggard_self;
	int drained = 1;
	(void)unused;
	for (int i = 0; i < 2; i++)
		drained = drained && atomic_load(g->ring.lanes[i].tailp) >= g->ring.lanes[i].head;
	atomic_store((_Atomic uint64_t *)(void *)(g->ring.mem + R_THREAD), drained ? (uint64_t)syscall(SYS_gettid) : 0);
	atomic_store((_Atomic uint32_t *)(void *)(g->ring.mem + R_STATE), LIVE);
	g->ring.depth = 0;
	t->ring = &g->ring;
	Py_RETURN_NONE;
}

/* ring_close marks it: its thread has ended. */
static PyObject *ring_close(Ring *g, PyObject *unused) {
	(void)unused;
	if (laggard_self.ring == &g->ring)
		laggard_self.ring = NULL;
	atomic_store((_Atomic uint32_t *)(void *)(g->ring.mem + R_STATE), CLOSED);
	Py_RETURN_NONE;
}

/* ring_share makes it the one for what ends in another thread than it began in. */
static PyObject *ring_share(Ring *g, PyObject *unused) {
	(void)unused;
	atomic_store((_Atomic uint64_t *)(void *)(g->ring.mem + R_THREAD), 0);
	atomic_store((_Atomic uint32_t *)(void *)(g->ring.mem + R_STATE), LIVE);
	shared = &g->ring;
	Py_RETURN_NONE;
}

static PyObject *ring_disown(Ring *g, PyObject *unused) {
	(void)unused;
	if (laggard_self.ring == &g->ring)
		laggard_self.ring = NULL;
	if (shared == &g->ring)
		shared = NULL;
	Py_RETURN_NONE;
}

static PyObject *ring_size(Ring *g, void *unused) {
	(void)unused;
	return PyLong_FromSize_t(g->ring.size);
}

static PyObject *ring_number(Ring *g, void *unused) {
	(void)unused;
	return PyLong_FromUnsignedLong(g->number);
}

static PyGetSetDef ring_fields[] = {
	{"size", (getter)ring_size, NULL, "bytes of the file", NULL},
	{"number", (getter)ring_number, NULL, "n of ring-<n>", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef ring_methods[] = {
	{"adopt", (PyCFunction)(void (*)(void))ring_adopt, METH_NOARGS, "Makes it the calling thread's."},
	{"close", (PyCFunction)(void (*)(void))ring_close, METH_NOARGS, "Marks it: its thread has ended."},
	{"share", (PyCFunction)(void (*)(void))ring_share, METH_NOARGS, "Makes it the process's shared ring."},
	{"disown", (PyCFunction)(void (*)(void))ring_disown, METH_NOARGS, "Ends the writing to it from this thread."},
	{NULL, NULL, 0, NULL},
};

static PyTypeObject RingType = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "_laggard.Ring",
	.tp_doc = "The writing end of a ring file: Ring(mapping, number, light, bulk).",
	.tp_basicsize = sizeof(Ring),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_new = PyType_GenericNew,
	.tp_init = (initproc)ring_init,
	.tp_dealloc = (destructor)ring_dealloc,
	.tp_methods = ring_methods,
	.tp_getset = ring_fields,
};
