package smoke

import "time"

// ready are the scenarios that the broker must pass today.
var ready = []scenario{
	{"queue_admin_crud", 20 * time.Second, queueCRUD},
	{"send_receive_complete", 20 * time.Second, sendReceiveComplete},
	{"batch_send_fifo", 30 * time.Second, batchFIFO},
	{"message_properties_roundtrip", 20 * time.Second, propsRoundtrip},
	{"body_200k", 20 * time.Second, bigBody},
	{"message_too_large", 20 * time.Second, tooLarge},
	{"entity_not_found", 20 * time.Second, notFound},
	{"long_poll", 20 * time.Second, longPoll},
	{"receive_and_delete", 20 * time.Second, receiveAndDelete},
	{"abandon_with_properties", 20 * time.Second, abandonProps},
	{"dead_letter_with_reason", 20 * time.Second, deadLetter},
	{"peek", 20 * time.Second, peek},
	{"renew_message_lock", 35 * time.Second, renewLock},
	{"lock_expiry_redelivery", 35 * time.Second, lockExpiry},
	{"settle_on_another_receiver", 25 * time.Second, settleElsewhere},
	{"max_delivery_to_dlq", 25 * time.Second, maxDelivery},
	{"session_accept_specific", 30 * time.Second, sessionSpecific},
	{"session_accept_next", 30 * time.Second, sessionNext},
	{"session_exclusive_lock", 30 * time.Second, sessionExclusive},
	{"session_state", 20 * time.Second, sessionState},
	{"session_renew_lock", 20 * time.Second, sessionRenew},
	{"session_lock_expiry", 40 * time.Second, sessionExpiry},
	{"session_required_guard", 20 * time.Second, sessionGuard},
	{"competing_consumers", 60 * time.Second, competing},
	{"defer_receive_deferred", 20 * time.Second, deferred},
	{"schedule_cancel", 30 * time.Second, scheduleCancel},
	{"scheduled_enqueue_property", 25 * time.Second, scheduledProperty},
	{"duplicate_detection", 20 * time.Second, dupDetection},
	{"ttl_expiry_drops", 25 * time.Second, ttlDrop},
	{"ttl_expiry_to_dlq", 30 * time.Second, ttlDLQ},
	{"runtime_counts", 25 * time.Second, runtimeCounts},
	{"entity_status_disabled", 25 * time.Second, statusDisabled},
	{"update_entity_link_survives", 30 * time.Second, updateDetach},
}

// waiting are the scenarios that need what the broker does not have yet, with the reason. Run them
// with -waiting; whoever builds a feature moves its scenarios up.
var waiting = []struct {
	scenario
	reason string
}{
	{scenario{"topic_sub_rule_admin_crud", 30 * time.Second, topicCRUD}, "topics"},
	{scenario{"topic_fanout", 20 * time.Second, fanout}, "topics"},
	{scenario{"topic_sql_filter", 20 * time.Second, sqlFilter}, "topics"},
	{scenario{"topic_correlation_filter", 20 * time.Second, corrFilter}, "topics"},
	{scenario{"topic_rule_action", 20 * time.Second, ruleAction}, "topics"},
	{scenario{"topic_several_rules_one_copy_each", 20 * time.Second, severalRules}, "topics"},
	{scenario{"subscription_dead_letter", 20 * time.Second, subDeadLetter}, "topics"},
	{scenario{"auto_forward_queue", 25 * time.Second, autoForward}, "forwarding"},
	{scenario{"auto_forward_subscription", 25 * time.Second, autoForwardSub}, "topics"},
	{scenario{"forward_dead_letters", 25 * time.Second, forwardDLQ}, "forwarding"},
}
