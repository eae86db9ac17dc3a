// The frame of the page: who is signed in, the list of entities at the side, and the page that the address names.

import { session, who, everywhere } from './api.js';
import { View, button, h } from './dom.js';
import { nudge, stop, watch } from './live.js';
import './signin.js';
import './tree.js';
import './overview.js';
import './entity.js';
import './create.js';
import './cluster.js';
import './connections.js';

/** Where the address leads: a list of the words behind the mark, each decoded. */
export function place() {
  return location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
}

class App extends View {
  async open() {
    addEventListener('signed-out', () => this.signedOut('The session is over. Sign in again.'), { signal: this.signal });
    addEventListener('changed', () => setTimeout(nudge, 100), { signal: this.signal });
    addEventListener('hashchange', () => this.turn(), { signal: this.signal });
    addEventListener('keydown', (e) => this.key(e), { signal: this.signal });
    try {
      await who();
    } catch (error) {
      this.fails(error);
      return;
    }
    this.frame();
  }

  frame() {
    if (!session.signedIn) {
      this.signedOut();
      return;
    }
    this.main = h('main', { id: 'main', tabindex: -1 });
    this.said = h('p', { id: 'said', role: 'status', 'aria-live': 'polite' });
    this.show(h('a', { class: 'skip', href: '#main', onclick: (e) => this.skip(e) }, 'Go to the content'), this.header(),
      h('div', { class: 'frame' }, h('bb-tree'), this.main), this.said);
    this.turn();
  }

  skip(e) {
    e.preventDefault();
    this.main.focus();
  }

  header() {
    const link = (to, text) => h('a', { href: to }, text);
    this.nav = h('nav', { 'aria-label': 'Pages' }, link('#/', 'Entities'), link('#/cluster', 'Cluster'),
      everywhere() ? link('#/connections', 'Connections') : null);
    this.state = h('a', { class: 'state', href: '#/cluster' }, 'Cluster');
    if (everywhere()) {
      this.until(watch({ cluster: true }, (event, data) => this.health(event, data)));
    } else {
      this.state.hidden = true;
    }
    const some = (session.entities ?? []).map((e) => `${e.rights.join(', ')} on ${e.path}`);
    const rights = [session.rights.join(', '), ...(some.length > 2 ? [`rights on ${some.length} entities`] : some)].filter(Boolean).join('; ');
    const all = [session.rights.join(', '), ...some].filter(Boolean).join('; ');
    const who = h('span', { class: 'who', title: `Rights: ${all}` }, session.policy,
      session.scope ? ` on ${session.scope}` : '', h('small', {}, ` (${rights})`));
    return h('header', { class: 'top' }, h('a', { class: 'brand', href: '#/' }, h('img', { src: '/$console/pages/icon.svg', alt: '' }), 'Busbar'),
      this.nav, h('span', { class: 'space' }), this.state, who, button('Sign out', () => this.leave(), { class: 'quiet' }));
  }

  health(event, data) {
    if (event !== 'health') {
      return;
    }
    const wrong = (data.findings ?? []).filter((f) => f.severity === 'alarm').length;
    this.state.textContent = wrong === 0 ? '✓ healthy' : `⚠ ${wrong} ${wrong === 1 ? 'alarm' : 'alarms'}`;
    this.state.classList.toggle('bad', wrong > 0);
  }

  async leave() {
    let leave = '';
    try {
      leave = (await who('DELETE')).leave;
    } finally {
      this.signedOut('You are signed out.', leave);
    }
  }

  signedOut(why = '', leave = '') {
    stop();
    session.signedIn = false;
    document.title = 'Busbar: sign in';
    for (const box of document.querySelectorAll('dialog')) {
      box.close();
    }
    const box = h('bb-signin');
    box.why = why;
    box.leave = leave;
    box.addEventListener('signed-in', () => this.frame());
    this.show(box);
  }

  /** turn shows the page that the address names. */
  turn() {
    if (!this.main || !session.signedIn) {
      return;
    }
    const [first, name, tab] = place();
    const pages = { '': 'bb-overview', cluster: 'bb-cluster', connections: 'bb-connections', entity: 'bb-entity', create: 'bb-create' };
    const page = document.createElement(pages[first] ?? 'bb-overview');
    if (first === 'entity') {
      const shown = this.main.firstElementChild;
      if (shown?.localName === 'bb-entity' && shown.path === name) {
        shown.turn(tab);
        this.mark(first);
        return;
      }
      page.path = name;
      page.tab = tab;
    }
    if (first === 'create') {
      page.kind = name;
      page.topic = tab;
    }
    this.main.replaceChildren(page);
    this.mark(first);
    document.title = `Busbar: ${first === 'entity' ? name : first || 'entities'}`;
  }

  mark(first) {
    const at = { cluster: '#/cluster', connections: '#/connections' }[first] ?? '#/';
    for (const a of this.nav.children) {
      a.toggleAttribute('aria-current', false);
      if (a.getAttribute('href') === at) {
        a.setAttribute('aria-current', 'page');
      }
    }
  }

  /** key lets "/" jump to the search, as in other tools. */
  key(e) {
    const typing = e.target.closest?.('input, textarea, select, [contenteditable]');
    if (e.key === '/' && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
      const search = this.querySelector('bb-tree input[type=search]');
      if (search) {
        e.preventDefault();
        search.focus();
      }
    }
  }
}

customElements.define('bb-app', App);
