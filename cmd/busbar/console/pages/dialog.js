// Dialogs: questions before something is done, and progress while it is.

import { button, count, field, h, id, problem } from './dom.js';

/** open shows a dialog of the browser, which keeps the focus inside. */
export function open(title, ...content) {
  const heading = id('dialog');
  const box = h('dialog', { 'aria-labelledby': heading }, h('h2', { id: heading }, title), ...content);
  document.body.append(box);
  box.addEventListener('close', () => box.remove());
  box.showModal();
  return box;
}

/**
 * work asks before something is done, does it, and shows how far it is. text says the numbers before. run gets a
 * function to tell progress with, and an object whose member stopped says that nobody wants it to go on. With word the
 * operator has to type it.
 */
export function work({ title, text, verb, danger, word, total, fields = [], run }) {
  return new Promise((resolve) => {
    const typed = word ? h('input', { autocomplete: 'off', spellcheck: 'false', oninput: () => ready() }) : null;
    const go = button(verb, () => start(), { class: danger ? 'danger' : 'main' });
    const cancel = button('Cancel', () => box.close());
    const state = { stopped: false };
    let done = false;
    const body = h('div', { class: 'body' }, h('div', { class: 'said' }, text), fields,
      typed ? field(`Type ${word} to go on`, typed) : null);
    const box = open(title, body, h('div', { class: 'actions' }, cancel, go));
    box.addEventListener('close', () => {
      state.stopped = true;
      resolve(done);
    });
    const ready = () => {
      go.disabled = Boolean(typed) && typed.value.trim() !== word;
    };
    ready();
    const bar = h('progress', { max: Math.max(1, total ?? 1), 'aria-label': title });
    const line = h('p', { class: 'said', role: 'status' });
    const start = async () => {
      go.disabled = true;
      cancel.textContent = 'Stop';
      body.replaceChildren(...(total === undefined ? [] : [bar]), line);
      try {
        line.textContent = await run((n) => {
          bar.value = n;
          line.textContent = total === undefined ? count(n) : `${count(n)} of ${count(total)}`;
        }, state);
        done = true;
      } catch (error) {
        body.append(problem(error));
      }
      bar.value = done ? bar.max : bar.value;
      go.remove();
      cancel.textContent = 'Close';
      cancel.focus();
    };
  });
}

/** pages repeats a request until it is done: step gets the cursor and returns how many, and where to go on. */
export async function pages(step, tell, state) {
  let done = 0;
  let next = '';
  do {
    const got = await step(next);
    done += got.done;
    tell(done);
    next = got.next;
  } while (next && !state.stopped);
  return { done, stopped: Boolean(next) };
}
