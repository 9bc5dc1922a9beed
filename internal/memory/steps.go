package memory

// MirrorSavings is what mirrors can do without, each by itself. Each method is called again and
// again while memory is short, and with false once it suffices.
type MirrorSavings interface {
	// ForgoEncodings keeps no object in another encoding than upstream's JSON.
	ForgoEncodings(on bool)
	// ForgoSegments keeps hardly anything of what was compressed.
	ForgoSegments(on bool)
	// Shorten keeps no more history than clients need to reconnect.
	Shorten(on bool)
	// Economize lets feeds that few watches share keep no frames.
	Economize(on bool)
	// RefuseOnDemand begins no mirror because a client requests a resource.
	RefuseOnDemand(on bool)
	// Retreat gives up mirrors on demand that have no state yet, or no clients.
	Retreat()
}

// ServerSavings is what the server can do without.
type ServerSavings interface {
	// ShedSelectors ends watches with costly selectors, and admits hardly any.
	ShedSelectors(on bool)
	// Economize makes large answers one after another.
	Economize(on bool)
	// Hasten cuts clients that take nothing within seconds, and EndSlow those that take little.
	Hasten(on bool)
	EndSlow()
}

// Parts of the limit in use from which on each step is taken. The collector needs some room, or it
// runs all the time; it has enough until three quarters.
const (
	encodingsAt = 0.70
	segmentsAt  = 0.74
	historyAt   = 0.78
	feedsAt     = 0.82
	selectorsAt = 0.84
	resourcesAt = 0.86
	answersAt   = 0.90
	clientsAt   = 0.94
)

// Steps is what can be done without, in order: first what costs only time to make again; then
// history, what is kept for few watches, and resources that are not mirrored yet; last, two steps
// that keep what clients do from ending the process.
func Steps(m MirrorSavings, s ServerSavings) []Step {
	return []Step{
		{
			Name: "encodings", At: encodingsAt, Gone: "protobuf and metadata are made anew for each who asks",
			Take: func() { m.ForgoEncodings(true) }, Back: func() { m.ForgoEncodings(false) },
		},
		{
			Name: "segments", At: segmentsAt, Gone: "hardly anything that was compressed is kept",
			Take: func() { m.ForgoSegments(true) }, Back: func() { m.ForgoSegments(false) },
		},
		{
			Name: "history", At: historyAt, Gone: "no more history is kept than of 75s",
			Take: func() {}, Hold: func() { m.Shorten(true) }, Back: func() { m.Shorten(false) },
		},
		{
			Name: "feeds", At: feedsAt, Gone: "watches with a selector of their own read the log, each for itself",
			Take: func() {}, Hold: func() { m.Economize(true) }, Back: func() { m.Economize(false) },
		},
		{
			Name: "selectors", At: selectorsAt,
			Gone: "watches with selectors of more than 256 terms are ended, and hardly any begin",
			Take: func() { s.ShedSelectors(true) }, Back: func() { s.ShedSelectors(false) },
		},
		{
			Name: "resources", At: resourcesAt, Gone: "no other resource is mirrored on demand: requests pass through",
			Take: func() { m.RefuseOnDemand(true) }, Hold: m.Retreat, Back: func() { m.RefuseOnDemand(false) },
		},
		{
			Name: "answers", At: answersAt, Gone: "large answers are made one after another",
			Take: func() { s.Economize(true) }, Back: func() { s.Economize(false) },
		},
		{
			Name: "clients", At: clientsAt,
			Gone: "clients that take nothing, or little of a large answer, are cut within seconds, " +
				"the most expensive answer first",
			Take: func() { s.Hasten(true) }, Hold: s.EndSlow, Back: func() { s.Hasten(false) },
		},
	}
}
