// Package scenario proves the acceptance scenarios of the specification (semantics.md, section 9), each in a test of
// its own that is named after it: TestT57... Everything is real but the clock, the network and the disks. Three whole
// nodes run in a bubble of virtual time, and clients speak AMQP with them through the library of the official SDK. So
// a scenario may wait an hour, and a lock expires to the millisecond.
//
// A scenario reads as the specification says it: given, when, then.
//
// # Where things are
//
//   - t_failover_test.go, t_leader_test.go, t_guarantee_test.go, t_log_test.go, t_stale_test.go, browse_test.go,
//     crash_test.go, crash_move_test.go: leaders and nodes that fail
//   - t_send_test.go, t_queue_test.go, t_window_test.go, t_repeat_test.go, t_schedule_test.go, t_reserved_test.go,
//     t_large_test.go, batch_test.go: sending
//   - t_wait_test.go, t_consume_test.go, t_count_test.go, t_locks_test.go, t_release_test.go, t_rest_test.go,
//     t_deferred_test.go, t_expiry_test.go, t_drops_test.go: receiving and settling
//   - t_session_test.go, t_holder_test.go, t_state_test.go, t_shared_test.go, t_reply_test.go: sessions
//   - t_topic_test.go, t_forward_test.go, t_hops_test.go, t_outbox_test.go, t_unreachable_test.go: topics, and messages
//     that go on
//   - t_transaction_test.go, t_large_transaction_test.go, random_transactions_test.go: transactions
//   - t_operator_test.go, t_suspend_test.go, t_idle_test.go, t_limit_test.go, t_busy_test.go, t_refusal_test.go,
//     t_reason_test.go, t_http_test.go: operators, limits and refusals
//   - deal_test.go, dealer_test.go: transactions, frame by frame
//   - settle_test.go, receive_test.go, client_test.go: clients that use the library
//   - size_test.go, scenario_test.go: what is compared, and the words of all scenarios
//
// Start with scenario_test.go, and any of the t_*_test.go files.
package scenario
