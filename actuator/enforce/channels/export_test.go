package channels

// OnStep calls f before and after each write of the record.
func (e *Enforcer) OnStep(f func(string)) { e.step = f }
