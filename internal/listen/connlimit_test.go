package listen

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

// fakeConn knows whether it is closed.
type fakeConn struct {
	net.Conn
	name   string
	closed bool
}

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

// At the limit, the connection that has been kept open longest without a complete request makes
// room: those that have been answered last, and those with a complete request never.
func TestLimitedConnectionsMakeRoom(t *testing.T) {
	c := newConnLimit(3)
	all := map[string]*fakeConn{}
	open := func(name string) { all[name] = &fakeConn{name: name}; c.changed(all[name], http.StateNew) }
	closed := func(want string) {
		t.Helper()
		var got []string
		for _, name := range []string{"idle", "served", "slow", "4", "5", "6", "7"} {
			if conn := all[name]; conn != nil && conn.closed {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("closed are %q, want %q", got, want)
		}
	}
	open("idle")
	c.changed(all["idle"], http.StateActive)
	c.changed(all["idle"], http.StateIdle)
	open("served")
	c.changed(all["served"], http.StateActive)
	RequestArrived(c.context(t.Context(), all["served"]))
	open("slow")
	c.changed(all["slow"], http.StateActive)
	closed("")
	open("4")
	closed("slow")
	c.changed(all["slow"], http.StateClosed)
	open("5")
	closed("slow 4")
	c.changed(all["5"], http.StateActive)
	RequestArrived(c.context(t.Context(), all["5"]))
	open("6")
	closed("idle slow 4")
	RequestArrived(c.context(t.Context(), all["6"]))
	open("7") // there is no room for it
	closed("idle slow 4 7")
	c.changed(all["7"], http.StateClosed)
	c.changed(all["served"], http.StateIdle)
	open("8")
	closed("idle served slow 4 7")
	for _, conn := range all {
		c.changed(conn, http.StateClosed)
	}
	if len(c.all)+c.incomplete.Len()+c.quiet.Len() != 0 {
		t.Errorf("there remain %v", c.all)
	}
}
