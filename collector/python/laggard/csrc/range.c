/* range.c: the object that a script begins and ends. Included by module.c. */

static Range *free_ranges[FREE_RANGES];
static int free_count;

static inline Range *new_range(int kind, unsigned text) {
	Range *s;
	if (LIKELY(free_count)) {
		s = free_ranges[--free_count];
		PyObject_Init((PyObject *)s, &RangeType);
	} else if (!(s = PyObject_New(Range, &RangeType))) {
		return NULL;
	}
	s->range.state = 0;
	s->range.slot[2] = 0;
	s->kind = kind;
	s->number = -1;
	s->device = NULL;
	memset(&s->attr, 0, sizeof s->attr);
	s->attr.text = (uint16_t)text;
	s->attr.peer = -1;
	return s;
}

static void range_dealloc(Range *s) {
	Py_CLEAR(s->device);
	if (LIKELY(Py_TYPE(s) == &RangeType && free_count < FREE_RANGES))
		free_ranges[free_count++] = s;
	else
		Py_TYPE(s)->tp_free((PyObject *)s);
}

static int range_init(Range *s, PyObject *args, PyObject *kwargs) {
	static char *names[] = {"kind", "text", "value", "dtype", "group", "peer", NULL};
	int kind, text = 0, dtype = 0, group = 0, peer = -1;
	long long value = 0;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|iLiii:Range", names, &kind, &text, &value, &dtype, &group, &peer))
		return -1;
	laggard_attr a = {(uint16_t)text, (uint16_t)group, 0, (uint8_t)dtype, peer, value};
	s->attr = a;
	s->kind = kind;
	s->number = -1;
	s->range.state = 0;
	s->range.slot[2] = 0;
	return 0;
}

static inline uint32_t current_step(void) { return atomic_load_explicit(&laggard_step, memory_order_relaxed); }

static inline void begin_in(thread *t, Range *s) {
	if (LIKELY(on(t, s->kind)))
		begin(t, &s->range, s->kind, &s->attr, LIKELY(s->number < 0) ? current_step() : (uint32_t)s->number);
}

/* ask calls a function of ours in Python whose result is true or false. */
static COLD int ask(PyObject *function, Range *s) {
	PyObject *automatic = PyObject_GetAttr((PyObject *)s, name_automatic);
	PyObject *answer = automatic ? PyObject_CallFunctionObjArgs(function, automatic, NULL) : NULL;
	int is = answer ? PyObject_IsTrue(answer) : -1;
	Py_XDECREF(automatic);
	Py_XDECREF(answer);
	return is;
}

/* attach_ring gives the thread its ring; 0 without one, -1 with an exception of the
 * script's own (recorder.attach lets no other through). */
static COLD int attach_ring(thread *t, Range *s) {
	PyObject *automatic = PyObject_GetAttr((PyObject *)s, name_automatic);
	PyObject *ring = automatic ? PyObject_CallFunctionObjArgs(do_attach, automatic, NULL) : NULL;
	Py_XDECREF(automatic);
	if (!ring)
		return -1;
	if (!t->ring) { /* something that stands for a ring, and counts where it must */
		PyObject *done = PyObject_CallMethod(ring, "begin", "O", s);
		Py_DECREF(ring);
		Py_XDECREF(done);
		return done ? 0 : -1;
	}
	Py_DECREF(ring);
	return 1;
}

static inline int range_begins(Range *s) {
	thread *t = &laggard_self;
	if (UNLIKELY(s->range.state == RECORDED))
		laggard_cancel(&s->range); /* begun again: the earlier time is forgotten */
	s->range.state = 0;
	if (UNLIKELY(!t->ring)) {
		int got = stopped || !do_attach ? 0 : attach_ring(t, s);
		if (got <= 0)
			return got;
	}
	begin_in(t, s);
	return 0;
}

static PyObject *range_enter(PyObject *self, PyObject *unused) {
	(void)unused;
	if (UNLIKELY(range_begins((Range *)self) < 0))
		return NULL;
	Py_INCREF(self);
	return self;
}

/* find_shared returns the shared ring, NULL where there is no room for one. */
static COLD ring *find_shared(void) {
	if (!shared && process && do_share) {
		PyObject *type, *value, *trace, *done;
		PyErr_Fetch(&type, &value, &trace);
		done = PyObject_CallFunctionObjArgs(do_share, NULL);
		if (!done)
			PyErr_Clear();
		Py_XDECREF(done);
		PyErr_Restore(type, value, trace);
	}
	return shared;
}

/* end_shared writes a range's record into the shared ring. */
static COLD void end_shared(Range *s) {
	thread *t = &laggard_self;
	ring *own, *g = find_shared();
	if (stopped || s->range.epoch != laggard_epoch)
		return;
	own = t->ring;
	t->ring = g;
	end(t, &s->range, kept(&s->range)); /* without a ring it counts the range as lost */
	t->ring = own;
}

/* range_ends writes the record of a range that has its dur and flags. */
static inline void range_ends(Range *s) {
	thread *t = &laggard_self;
	s->range.state = 0;
	if (LIKELY(s->range.ring == t->ring && !stopped && t->ring))
		end(t, &s->range, kept(&s->range));
	else
		end_shared(s);
}

static inline void set_dur(Range *s, int64_t at) {
	int64_t dur = at - (int64_t)s->range.slot[2];
	s->range.slot[3] = (uint64_t)(dur > 0 ? dur : 0);
}

static inline void set_exposed(Range *s, int64_t exposed) {
	s->range.slot[0] |= (uint64_t)FLAG_EXPOSED << 40;
	s->range.slot[4] = (uint64_t)(exposed > 0 ? exposed : 0);
}

static inline PyObject *range_exits(Range *s) {
	if (LIKELY(s->range.state == RECORDED)) {
		set_dur(s, now(&laggard_self));
		if (s->kind == LAGGARD_COMMUNICATION)
			set_exposed(s, (int64_t)s->range.slot[3]);
		range_ends(s);
	}
	Py_RETURN_NONE;
}

static PyObject *range_exit(PyObject *self, PyObject *const *args, Py_ssize_t n) {
	(void)args;
	(void)n;
	return range_exits((Range *)self);
}

static PyObject *range_end(PyObject *self, PyObject *args, PyObject *kwargs) {
	static char *names[] = {"exposed", "at", NULL};
	PyObject *exposed = Py_None, *at = Py_None;
	Range *s = (Range *)self;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:end", names, &exposed, &at))
		return NULL;
	if (exposed == Py_None && at == Py_None)
		return range_exits(s);
	long long when = at == Py_None ? 0 : PyLong_AsLongLong(at), waited = exposed == Py_None ? -1 : PyLong_AsLongLong(exposed);
	if (PyErr_Occurred())
		return NULL;
	if (s->range.state == RECORDED) {
		set_dur(s, at == Py_None ? now(&laggard_self) : when);
		if (waited >= 0)
			set_exposed(s, waited);
		else if (exposed == Py_None && s->kind == LAGGARD_COMMUNICATION)
			set_exposed(s, (int64_t)s->range.slot[3]);
		range_ends(s);
	}
	Py_RETURN_NONE;
}

static PyObject *range_cancel(PyObject *self, PyObject *unused) {
	(void)unused;
	laggard_cancel(&((Range *)self)->range);
	Py_RETURN_NONE;
}

static PyObject *get_slot(Range *s, void *unused) {
	(void)unused;
	if (s->range.state != RECORDED)
		return PyLong_FromLong(SLOT_OFF);
	return PyLong_FromLong(s->range.level < OPEN_LEVELS ? R_OPEN + s->range.level * SLOT_SIZE : SLOT_UNLISTED);
}

static int set_slot(Range *s, PyObject *value, void *unused) {
	(void)unused;
	if (!value || PyLong_AsLong(value) != SLOT_OFF) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ValueError, "a range's slot can only be given up");
		return -1;
	}
	s->range.state = 0;
	return 0;
}

static PyObject *get_start(Range *s, void *unused) {
	(void)unused;
	return PyLong_FromLongLong((long long)s->range.slot[2]);
}

static PyObject *get_step(Range *s, void *unused) {
	(void)unused;
	return PyLong_FromUnsignedLong((uint32_t)s->range.slot[6]);
}

static PyObject *get_number(Range *s, void *unused) {
	(void)unused;
	if (s->number < 0)
		Py_RETURN_NONE;
	return PyLong_FromLongLong(s->number);
}

static int set_number(Range *s, PyObject *value, void *unused) {
	unsigned long n = value ? PyLong_AsUnsignedLongMask(value) : 0;
	(void)unused;
	if (PyErr_Occurred())
		return -1;
	s->number = (int64_t)(n & NO_STEP);
	return 0;
}

static PyObject *get_value(Range *s, void *unused) {
	(void)unused;
	return PyLong_FromLongLong(s->attr.value);
}

static int set_value(Range *s, PyObject *value, void *unused) {
	long long v = value ? PyLong_AsLongLong(value) : 0;
	(void)unused;
	if (PyErr_Occurred())
		return -1;
	s->attr.value = v;
	laggard_set_value(&s->range, v);
	return 0;
}

static PyObject *get_head(Range *s, void *unused) {
	(void)unused;
	return PyLong_FromLong(s->kind | s->attr.dtype << 16);
}

static int set_head(Range *s, PyObject *value, void *unused) {
	long head = value ? PyLong_AsLong(value) : -1;
	(void)unused;
	if (head < 0) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ValueError, "a range's head is its kind and its dtype");
		return -1;
	}
	s->attr.dtype = (uint8_t)(head >> 16);
	if (s->range.state == RECORDED)
		s->range.slot[0] = (s->range.slot[0] & ~((uint64_t)0xFF << 48)) | (uint64_t)s->attr.dtype << 48;
	return 0;
}

static PyObject *get_text(Range *s, void *unused) {
	(void)unused;
	return PyLong_FromLong(s->attr.text);
}

static PyObject *get_bit(Range *s, void *unused) {
	(void)unused;
	return PyLong_FromLong(s->kind == LAGGARD_COMMUNICATION ? COMMUNICATION_ON : LIGHT_ON);
}

static PyGetSetDef range_fields[] = {
	{"slot", (getter)get_slot, (setter)set_slot, "where it stands in the table of open ranges; -1 not there, -2 not recorded", NULL},
	{"start", (getter)get_start, NULL, "ns since the Unix epoch", NULL},
	{"step", (getter)get_step, NULL, "number of its step", NULL},
	{"number", (getter)get_number, (setter)set_number, "number of the step that it is", NULL},
	{"value", (getter)get_value, (setter)set_value, "count, tokens or bytes", NULL},
	{"head", (getter)get_head, (setter)set_head, "kind and dtype, as a slot holds them", NULL},
	{"text", (getter)get_text, NULL, "id of its op, path or word", NULL},
	{"bit", (getter)get_bit, NULL, "bit of the switch word that turns it on", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef range_members[] = {
	{"device", T_OBJECT, offsetof(Range, device), 0, "the events of a range on an accelerator, see device.py"},
	{NULL, 0, 0, 0, NULL},
};

static PyMethodDef range_methods[] = {
	{"__enter__", range_enter, METH_NOARGS, NULL},
	{"__exit__", (PyCFunction)(void (*)(void))range_exit, METH_FASTCALL, NULL},
	{"begin", range_enter, METH_NOARGS, "Begins the range; returns it."},
	{"end", (PyCFunction)(void (*)(void))range_end, METH_VARARGS | METH_KEYWORDS,
	 "Ends the range, now or at a time; exposed is the ns the trainer waited."},
	{"cancel", range_cancel, METH_NOARGS, "Forgets the range: nothing is recorded."},
	{NULL, NULL, 0, NULL},
};

static PyTypeObject RangeType = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "_laggard.Range",
	.tp_doc = "One range: Range(kind, text=0, value=0, dtype=0, group=0, peer=-1).",
	.tp_basicsize = sizeof(Range),
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.tp_new = PyType_GenericNew,
	.tp_init = (initproc)range_init,
	.tp_dealloc = (destructor)range_dealloc,
	.tp_methods = range_methods,
	.tp_getset = range_fields,
	.tp_members = range_members,
};

/* ---- ranges that begin or end outside of their thread's ring ---- */

static Range *as_range(PyObject *o) {
	if (PyObject_TypeCheck(o, &RangeType))
		return (Range *)o;
	PyErr_SetString(PyExc_TypeError, "not a range");
	return NULL;
}

/* begin_shared begins a range that is listed in the shared ring: there is a process. */
static void begin_shared(thread *t, Range *s) {
	ring *own = t->ring, *g = find_shared();
	if (g) {
		t->ring = g;
		begin_in(t, s);
		t->ring = own;
	} else if (on(t, s->kind)) {
		laggard_lose(s->kind);
	}
}

/* begin_elsewhere(range): it is listed in the shared ring and may end in any thread. */
static PyObject *begin_elsewhere(PyObject *self, PyObject *o) {
	thread *t = &laggard_self;
	Range *s = as_range(o);
	(void)self;
	if (!s)
		return NULL;
	s->range.state = 0;
	if (!process && !stopped && do_ready && ask(do_ready, s) < 0)
		return NULL;
	if (process && !stopped)
		begin_shared(t, s);
	Py_INCREF(o);
	return o;
}

/* elsewhere(range, start, dur, flags=0, extra=0, host_dur=0) writes its record. */
static PyObject *end_elsewhere(PyObject *self, PyObject *args) {
	PyObject *o;
	long long start, dur, extra = 0, host_dur = 0;
	int flags = 0;
	Range *s;
	(void)self;
	if (!PyArg_ParseTuple(args, "OLL|iLL:elsewhere", &o, &start, &dur, &flags, &extra, &host_dur) || !(s = as_range(o)))
		return NULL;
	if (s->range.state == RECORDED && s->range.epoch == laggard_epoch && !stopped) {
		laggard_range *r = &s->range;
		if (r->ring != find_shared()) {
			release(&laggard_self, r); /* it is known by the start that it had */
			r->level = UNTRACKED;
		}
		r->slot[0] |= (uint64_t)(flags & 0xFF) << 40;
		r->slot[2] = (uint64_t)start;
		r->slot[3] = (uint64_t)(dur > 0 ? dur : 0);
		r->slot[4] = (uint64_t)extra;
		r->slot[5] |= bits48(host_dur);
		end_shared(s);
	}
	s->range.state = 0;
	Py_RETURN_NONE;
}
