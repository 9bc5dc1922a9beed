// What the clients written in Go share.
module spillway/test/e2e/clients/protocol

go 1.26.0
