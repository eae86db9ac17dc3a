// The cluster: its nodes, partitions and their leaders, what is wrong, and what an operator may do about it.

import { call, everywhere } from './api.js';
import { View, announce, bytes, button, count, h, many, moment, note, problem, select, span, table } from './dom.js';
import { work } from './dialog.js';
import { watch } from './live.js';

const verbs = {
  drain: 'The node gives its leaderships away at once, and its replicas if other nodes are free. It serves clients, and stays drained over restarts.',
  undrain: 'The node gets its share again.',
  remove: 'The node is drained, sends its clients to other nodes, and is then forgotten. Stop it afterwards.',
  forget: 'For a node that never comes back: others take its places at once. It is not taken in again under its identity.',
};

class Cluster extends View {
  open() {
    this.findings = h('section', { 'aria-label': 'Health' });
    this.nodes = h('section', { 'aria-label': 'Nodes' });
    this.partitions = h('section', { 'aria-label': 'Partitions' });
    this.top = h('div', { class: 'title' }, h('h1', {}, 'Cluster'), h('span', { class: 'space' }), everywhere() ? button('Rebalance leaders…', () => this.rebalance()) : null);
    this.show(this.top, this.findings, this.nodes, this.partitions);
    this.until(watch({ cluster: true }, (event, data) => this.told(event, data)));
    this.load();
  }

  async load() {
    const signal = this.latest();
    for (const [event, path] of [['cluster', '/api/cluster'], ['health', '/api/health/cluster']]) {
      try {
        this.told(event, await call('GET', path, {}, { signal }));
      } catch (error) {
        if (error.name !== 'AbortError') {
          this.findings.replaceChildren(problem(error));
        }
      }
    }
  }

  told(event, data) {
    if (event === 'cluster') {
      this.cluster = data;
    } else if (event === 'health') {
      this.health = data;
    }
    if (!this.cluster) {
      return;
    }
    this.replace(this.findings, this.drawHealth());
    this.replace(this.nodes, this.drawNodes());
    this.replace(this.partitions, this.drawPartitions());
  }

  /** replace leaves a part alone whose buttons somebody is at. */
  replace(part, nodes) {
    const again = part.contains(document.activeElement) ? document.activeElement.getAttribute('aria-label') : null;
    part.replaceChildren(...nodes);
    if (again) {
      part.querySelector(`[aria-label="${CSS.escape(again)}"]`)?.focus({ preventScroll: true });
    }
  }

  drawHealth() {
    const found = this.health?.findings ?? [];
    if (!this.health) {
      return [];
    }
    if (found.length === 0) {
      return [h('p', { class: 'good' }, '✓ Nothing is wrong.')];
    }
    return [h('ul', { class: 'findings' }, found.map((f) => h('li', { class: f.severity }, h('strong', {}, f.severity === 'alarm' ? '⚠ alarm: ' : '● warning: '), `${f.says}`, f.cure ? h('small', {}, ` ${f.cure}`) : '')))];
  }

  drawNodes() {
    const says = new Map((this.health?.nodes ?? []).map((n) => [n.id, n]));
    const columns = ['Node', 'State', 'Version', ['Up', 'number'], ['Leads', 'number'], ['Replicas', 'number'], ['Disk free', 'number'], 'Certificate', ...(everywhere() ? [['Acts', 'acts']] : [])];
    const lines = this.cluster.nodes.map((n) => this.node(n, says.get(n.id) ?? {}));
    const version = this.cluster.clusterVersion ? `, cluster version ${this.cluster.clusterVersion}${this.cluster.knows !== this.cluster.clusterVersion ? `, this program knows ${this.cluster.knows}` : ''}` : '';
    return [h('h2', {}, `${many(this.cluster.nodes.length, 'node')}${version}`), table('Nodes of the cluster', columns, lines), ...this.moves()];
  }

  node(n, says) {
    const wish = n.wish ? h('span', { class: 'mark' }, { drain: 'drained', remove: 'is removed', gone: 'forgotten' }[n.wish] ?? n.wish) : '';
    const faults = says.faults ?? [];
    const disk = says.diskTotalBytes ? `${bytes(says.diskFreeBytes)} of ${bytes(says.diskTotalBytes)}` : '–';
    const certificate = says.certificate ? ['until ', moment(says.certificate.expires), says.certificate.fault ? h('span', { class: 'bad' }, ` ⚠ ${says.certificate.fault}`) : ''] : 'none';
    return h('tr', {}, h('th', { scope: 'row' }, h('strong', {}, n.id), n.id === this.cluster.node ? h('small', {}, ' this one') : '',
      h('br'), h('small', {}, [n.zone ? `zone ${n.zone}` : '', n.address ?? ''].filter(Boolean).join(', '))),
      h('td', {}, n.state === 'alive' ? 'alive' : h('span', { class: 'bad' }, `⚠ ${n.state}`), ' ', wish, n.stays ? h('small', {}, ` ${n.stays}`) : '', faults.map((f) => h('div', { class: 'bad' }, `⚠ ${f.name}: ${f.reason}`))),
      h('td', {}, says.version ?? ''), h('td', { class: 'number' }, says.uptimeMillis ? span(says.uptimeMillis) : '–'), h('td', { class: 'number' }, count(n.leads ?? 0)),
      h('td', { class: 'number' }, count(n.replicas ?? 0)), h('td', { class: 'number' }, disk), h('td', {}, certificate),
      everywhere() ? h('td', { class: 'acts' }, this.acts(n)) : null);
  }

  acts(n) {
    const of = n.wish ? ['undrain', ...(n.state === 'alive' ? [] : ['forget'])] : n.state === 'alive' ? ['drain', 'remove'] : ['forget'];
    return of.map((verb) => button(`${verb[0].toUpperCase()}${verb.slice(1)}…`, () => this.wish(verb, n.id), { class: verb === 'remove' || verb === 'forget' ? 'danger' : '', 'aria-label': `${verb} ${n.id}` }));
  }

  moves() {
    const all = (this.cluster.progress ?? []).map((m) => h('li', {}, `Partition ${m.partition}: ${m.node} is filled by ${m.from}, ` +
      `${m.bytesTotal ? `${bytes(m.bytesSent)} of ${bytes(m.bytesTotal)} sent, ` : ''}${many(m.entriesLeft, 'entry').replace(/entrys$/, 'entries')} left`));
    const shares = (this.cluster.rehomings ?? []).map((r) => h('li', {}, `${r.entity}: share ${r.share} moves from partition ${r.from} to ${r.to}, ${r.step}${r.why ? `: ${r.why}` : ''}`));
    return all.length + shares.length > 0 ? [h('ul', {}, all, shares)] : [];
  }

  drawPartitions() {
    const columns = ['Partition', 'Leader', 'Replicas', ['Term', 'number'], ['Applied', 'number'], 'Remarks', ...(everywhere() ? [['Acts', 'acts']] : [])];
    const lines = this.cluster.partitions.map((p) => h('tr', {}, h('th', { scope: 'row' }, p.id === 0 ? 'catalog' : String(p.id)),
      h('td', {}, p.leader || h('span', { class: 'bad' }, '⚠ none known')), h('td', {}, p.replicas.join(', ')), h('td', { class: 'number' }, count(p.term)), h('td', { class: 'number' }, p.applied ? count(p.applied) : ''),
      h('td', {}, [p.failure, ...(p.differs ?? [])].filter(Boolean).join(' ')),
      everywhere() ? h('td', { class: 'acts' }, p.replicas.length > 1 ? button('Transfer…', () => this.transfer(p), { 'aria-label': `Transfer partition ${p.id === 0 ? 'catalog' : p.id}` }) : '') : null));
    return [h('h2', {}, `${many(this.cluster.partitions.length - 1, 'partition')} and the catalog`), table('Partitions and their leaders', columns, lines, { class: 'fit' })];
  }

  command(verb, values) {
    return call('POST', `/api/cluster/${verb}`, values);
  }

  async wish(verb, node) {
    await work({ title: `${verb[0].toUpperCase()}${verb.slice(1)} ${node}`, text: verbs[verb], verb: verb[0].toUpperCase() + verb.slice(1), danger: verb === 'remove' || verb === 'forget',
      word: verb === 'remove' || verb === 'forget' ? node : null,
      run: async () => {
        await this.command(verb, { node });
        return 'The cluster knows it and works on it. The table shows how far it is.';
      } });
    this.load();
  }

  async transfer(p) {
    const to = select(p.replicas.filter((r) => r !== p.leader), undefined, { 'aria-label': 'To node' });
    await work({ title: `Transfer the leadership of ${p.id === 0 ? 'the catalog' : `partition ${p.id}`}`, verb: 'Transfer', fields: [h('p', {}, 'To ', to)],
      text: `${p.leader || 'No known node'} leads it. Requests wait for a moment.`,
      run: async () => {
        await this.command('transfer-leader', { partition: p.id, to: to.value });
        return `${to.value} leads it now.`;
      } });
    this.load();
  }

  async rebalance() {
    await work({ title: 'Rebalance leaders', verb: 'Rebalance', text: 'Leaderships go to the nodes that should have them. Requests of those partitions wait for a moment.',
      run: async () => {
        const got = await this.command('rebalance');
        return `${many(got.moved, 'leadership')} handed over. ${(got.stay ?? []).join(' ')}`;
      } });
    announce('Leaders are rebalanced.');
    this.load();
  }
}

customElements.define('bb-cluster', Cluster);
