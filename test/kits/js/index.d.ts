/** What a broker begins with. */
export interface Options {
  /** The path of a file in the form of the official emulator's Config.json, or an object of that form. */
  entities?: string | object;
  /** The path of the program; else the variable BUSBAR_BINARY, or busbar on the path, or a container of BUSBAR_IMAGE. */
  program?: string;
}

/** Names and values of the management API, such as { LockDuration: 'PT5S' }. A property that there is not is refused. */
export type Properties = Record<string, string | number | boolean>;

/** A running broker. */
export interface Broker extends AsyncDisposable {
  /** For clients of Azure Service Bus. */
  readonly connectionString: string;
  /** The URL of health, metrics, the management API and the console. */
  readonly operations: string;
  /** What the broker has printed so far. */
  readonly log: string;
  /** Makes a queue and returns its name, the prefix and a number. */
  queue(prefix: string, properties?: Properties): Promise<string>;
  /** Makes a topic with subscriptions that get every message, and returns its name. */
  topic(prefix: string, subscriptions?: string[], properties?: Properties): Promise<string>;
  /** Empties every entity, as if each had just been made. Close receivers before. */
  reset(): Promise<void>;
  /** Ends the broker and removes its data. It may be called again. */
  stop(): Promise<void>;
}

/** Starts a broker and waits until it serves. */
export function start(options?: Options): Promise<Broker>;
