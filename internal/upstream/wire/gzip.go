package wire

import (
	"bufio"
	"compress/gzip"
	"io"
)

// Members reads a body of gzip members, each of which is a flush of the server (W-7).
//
// net/http would decompress too, but its gzip.Reader reads the header of the next member before it
// returns the end of this one. That would hold back an event until the next, unless the server ends
// its members with an empty block, as kube-apiserver happens to do.
type Members struct {
	body io.ReadCloser
	in   *bufio.Reader
	z    *gzip.Reader // nil before the first member
	open bool         // between the beginning and the end of a member
}

// NewMembers reads the members of a body.
func NewMembers(body io.ReadCloser) *Members {
	return &Members{body: body, in: bufio.NewReaderSize(body, Buffer)}
}

// Read returns what there is of one member; the header of the next is waited for only when nothing
// else is left to return.
func (m *Members) Read(p []byte) (int, error) {
	for {
		if !m.open {
			if err := m.next(); err != nil {
				return 0, err
			}
		}
		n, err := m.z.Read(p)
		if err == io.EOF {
			m.open, err = false, nil
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// next waits for the header of a member; io.EOF if the body ended between two.
func (m *Members) next() (err error) {
	if m.z == nil {
		m.z, err = gzip.NewReader(m.in)
	} else {
		err = m.z.Reset(m.in)
	}
	if err != nil {
		return err
	}
	m.z.Multistream(false)
	m.open = true
	return nil
}

// Close closes the body.
func (m *Members) Close() error { return m.body.Close() }
