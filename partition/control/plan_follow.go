package control

import (
	"slices"

	"github.com/busbar-mq/busbar/fsm"
	"github.com/busbar-mq/busbar/fsm/catalog"
)

// followGain is what must be gained: this part of all requests of the partitions that get another leader.
const followGain = 1.0 / 3

// follow makes the node the preferred leader of a partition through which most of its requests come. Leaders stay level.
// So the node has fewer than the leader has, or it gives a partition in return whose requests do not need it as much.
// Each exchange brings more requests to their leader, so that the steps end while the traffic stays the same.
func (p *planner) follow() []catalog.Exchange {
	var best []catalog.Exchange
	var most float64
	for k := range p.Groups {
		g := &p.Groups[k]
		i := p.busiest(g)
		if i <= 0 {
			continue
		}
		from, to := g.Members[0], g.Members[i]
		gain, total := p.moved(g, to)
		if p.leads[from] > p.leads[to] {
			if gain >= total*followGain && gain > most {
				best, most = []catalog.Exchange{*first(g, i)}, gain
			}
			continue
		}
		for l := range p.Groups {
			back := &p.Groups[l]
			j := slices.Index(back.Members, from)
			if j <= 0 || back.Members[0] != to || !p.able(from) {
				continue
			}
			more, also := p.moved(back, from)
			if sum := gain + more; sum >= (total+also)*followGain && sum > most {
				best, most = []catalog.Exchange{*first(g, i), *first(back, j)}, sum
			}
		}
	}
	return best
}

// busiest returns the place of the member through which the most requests come, 0 or less if no other member should lead.
func (p *planner) busiest(g *LayoutGroup) int {
	best := -1
	for i, n := range g.Members {
		if p.able(n) && (best < 0 || g.Traffic[n] > g.Traffic[g.Members[best]]) {
			best = i
		}
	}
	if best > 0 && g.Traffic[g.Members[best]] < p.FollowFrom {
		return -1
	}
	return best
}

// moved returns how many more requests per second come through the leader of a partition when a node leads it, and
// how many there are.
func (p *planner) moved(g *LayoutGroup, to fsm.NodeID) (gain, total float64) {
	for _, rate := range g.Traffic { // order-free: a sum
		total += float64(rate)
	}
	return float64(g.Traffic[to]) - float64(g.Traffic[g.Members[0]]), total
}
