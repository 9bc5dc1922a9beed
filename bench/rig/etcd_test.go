package rig

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func TestMemberOf(t *testing.T) {
	message := member(member(member(nil, 1, []byte("head")), 2, []byte("first")), 2, []byte("second"))
	message = protowire.AppendVarint(protowire.AppendTag(message, 3, protowire.VarintType), 7)
	if got, err := memberOf(message, 2); err != nil || string(got) != "first" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, number := range []protowire.Number{3, 4} {
		if got, err := memberOf(message, number); err == nil {
			t.Errorf("member %d is %q", number, got)
		}
	}
	if got, err := memberOf(message[:4], 1); err == nil {
		t.Errorf("half a member is %q", got)
	}
}

func TestEtcdKey(t *testing.T) {
	if got, want := etcdKey(ConfigMaps+"/pulse-0001"), "/registry/configmaps/default/pulse-0001"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
