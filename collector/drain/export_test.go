package drain

// SetCrashPoint sets what is called at every labelled point.
func SetCrashPoint(f func(label string)) { crashPoint = f }
