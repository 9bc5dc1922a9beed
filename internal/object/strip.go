package object

// StripManagedFields drops metadata.managedFields from objects that are parsed from now on. They
// are often a third of an object, and only kube-apiserver itself uses them, when an object is
// applied. Clients then do not get all that upstream sent, so the operator must choose it.
func (r *Resource) StripManagedFields() { r.stripped.Store(true) }

// withoutManagedFields is raw, or a copy without metadata.managedFields. What is malformed is left
// for Parse to refuse.
func withoutManagedFields(raw []byte) (out []byte, isCopy bool) {
	gap := managedFields(raw)
	if gap == (span{}) {
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
		gap, top.err = s.memberGap("managedFields")
		if gap != (span{}) {
			return gap
		}
	}
	return span{}
}

// memberGap is the place of a member in the object that comes next, with a comma: the one in front
// of it, or, of the first member, the one behind it. It is nowhere if there is no such member, and
// then the scanner has passed the object.
func (s *scanner) memberGap(name string) (gap span, err error) {
	m := s.members()
	previousEnd := 0 // of the member in front; 0: there is none
	for m.next() {
		isWanted, start := m.key == name, int(m.at.start)-1
		if m.err = s.skip(); m.err != nil {
			break
		}
		switch {
		case !isWanted:
			previousEnd = s.i
		case previousEnd > 0:
			return s.span(previousEnd), nil
		default:
			if s.peek() == ',' {
				s.i++
			}
			return s.span(start), nil
		}
	}
	return span{}, m.err
}
