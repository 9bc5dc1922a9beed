package object

// StripManagedFields drops metadata.managedFields from objects that are parsed from now on. It is
// often a third of an object, and only kube-apiserver itself uses it, when an object is applied.
// Clients then do not get all that upstream sent, so the user must choose it.
func (r *Resource) StripManagedFields() { r.stripped.Store(true) }

// lean is raw, or a copy without metadata.managedFields. What is malformed is left for Parse to
// refuse.
func lean(raw []byte) (out []byte, copied bool) {
	gap := managedFields(raw)
	if gap.end == 0 {
		return raw, false
	}
	out = make([]byte, 0, len(raw)-int(gap.end-gap.start))
	out = append(out, raw[:gap.start]...)
	return append(out, raw[gap.end:]...), true
}

// managedFields is where an object's metadata has its managedFields, with the comma that goes with
// them; nowhere if there are none.
func managedFields(raw []byte) (gap span) {
	s := scanner{b: raw}
	top := s.members()
	for top.next() {
		if top.key != "metadata" || s.peek() != '{' {
			top.err = s.skip()
			continue
		}
		gap, top.err = s.member("managedFields")
		if gap.end > 0 {
			return gap
		}
	}
	return span{}
}

// member is where the object that comes next has the member called name, with a comma: the one
// before it, or, of the first member, the one after it. It is nowhere if there is none, and then
// the scanner has passed the object.
func (s *scanner) member(name string) (at span, err error) {
	m := s.members()
	end := 0 // of the member before
	for m.next() {
		found, start := m.key == name, int(m.at.start)-1
		if m.err = s.skip(); m.err != nil {
			break
		}
		switch {
		case !found:
			end = s.i
		case end > 0:
			return span{uint32(end), uint32(s.i)}, nil // #nosec G115 -- objects are below 4 GiB (parser.parse)
		case s.peek() == ',':
			return span{uint32(start), uint32(s.i + 1)}, nil // #nosec G115 -- objects are below 4 GiB (parser.parse)
		default: // the only one
			return span{uint32(start), uint32(s.i)}, nil // #nosec G115 -- objects are below 4 GiB (parser.parse)
		}
	}
	return span{}, m.err
}
