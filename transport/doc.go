// Package transport is the AMQP 1.0 front end: listeners, connections, channels, links, and the
// request nodes $cbs and $management. It serves messages over HTTP as well.
//
// It turns wire words (transfer, disposition) into commands of package fsm: messages in message_translate.go, requests
// in the files of their operations. It knows nothing of partitions, Raft or disks: behind it is a Broker with three
// verbs, which package waist speaks. It never keeps a message that the broker has not made durable.
//
// A connection has a loop, which owns all that the connection has open. The loop has no goroutine of its own: whoever has news takes
// its turns, one goroutine at a time. The reader has a goroutine. Work that waits runs on goroutines beside the loop and comes back to it.
// A request to a leader of this node needs none: its answer is posted to the loop. With the build tag loopcheck each method of a
// channel, of a link, of a link's end, of a settler, of a held session and of a transaction asserts that it runs on the
// loop.
//
// Start with conn_loop.go, then channel_frames.go and link_attach.go, which lead to everything else. The structs of a
// connection and of the server, with their owners, are in conn.go and server.go.
//
// # Where things are
//
// From the top down; a file uses those below it, with few exceptions.
//
//   - listening, and what the server does for all connections: server_serve.go server_away.go server_watch.go
//     server_listener.go server_websocket.go server_connections.go
//   - messages over HTTP: http_messages.go http_send.go http_receive.go http_body.go http_problem.go http_request.go
//     http_properties.go http_json.go
//   - the loop of a connection and the frames of its channels: conn_loop.go conn_handshake.go channel_frames.go
//     channel_rebegin.go link_attach.go
//   - request nodes: request_cbs.go request_turn.go request_work.go request_answer.go request_replies.go request.go
//   - operations of $management: management.go management_transaction.go management_shared.go management_locks.go
//     management_session.go management_peek.go management_receive.go management_settle.go management_schedule.go
//     management_delete.go management_rules.go management_carried.go management_call.go
//   - transactions: transaction_work.go transaction_coordinator.go transaction_doubt.go transaction_commits.go
//     transaction.go
//   - links that send to us: ingress_pump.go ingress_round.go ingress_late.go ingress.go
//   - links that receive, their sessions and settlements: channel_disposition.go egress_browser.go session_shared.go
//     session.go egress_settle.go egress_fetch.go egress_pace.go egress.go
//   - what all links have: link_intake.go link_outgoing.go link_repeat.go link.go
//   - what all channels have: channel_answered.go channel_sent.go channel_acks.go channel.go
//   - what a connection does in the midst of its work: conn_fault.go conn_leave.go conn_view.go conn_tick.go conn_rights.go
//     conn_audit.go conn_pump.go conn_begun.go conn_writer.go conn_direct.go conn_direct_unix.go conn_direct_other.go
//     conn_reader.go conn_mailbox.go
//   - forms of messages: message_show.go message_filter.go message_look.go message_bodiless.go message_translate.go message_delay.go
//     message_pieces.go span.go stored.go copies.go message_annotations.go
//   - forms of requests and refusals, and the structs that the loop and the server own: request_form.go errors_tell.go
//     errors_texts.go conn_footprint.go conn.go server.go inbound.go
//   - leaves that know no connection: transaction_ledger.go http_places.go repeats.go address.go rates.go memory.go
//     workers.go runners.go credit.go errors.go stats.go client_kinds.go config.go ports.go
//   - the assertion that the loop runs: loop.go loop_checked.go loop_checked_asm.go loop_checked_other.go
package transport
