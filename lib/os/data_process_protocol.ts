/**
 * What a main process and a data process say to each other before the messages of workers, which follow
 * when the data process has answered `ours`. Each message is a frame.
 *
 * @module
 */

/** The messages of another number are not understood. Changes with them, and with the shared memory. */
export const DATA_PROTOCOL = 1;

/** Bytes of the longest message of a connection that has not shown the key. */
export const LONGEST_GREETING = 65_536;
/** Bytes of the longest message after that. */
export const LONGEST_MESSAGE = 64 * 1024 * 1024;

/** The first argument of a process that is one. */
export const DATA_PROCESS = "data-process";
/** The argument after it of one that only tries whether it works. */
export const TRY_OUT = "--try";
/** The line that it prints when it can be greeted. */
export const LISTENING = "listening";

/** The files of data processes, in a folder that only their owner can enter. */
export const KEY_FILE = "key";
export const MEMORY_FILE = "memory";

/** What all workers are started with. Others with something else do not work together. */
export interface DataSettings {
  readonly protocol: number;
  readonly count: number;
  /** Of one process. */
  readonly openFiles: { readonly limit: number; readonly ports: number };
  readonly unixSocketFolders: readonly string[];
  /** Everything else that data processes are told once. */
  readonly more: string;
}

/** What a main process says. `key`: the content of the key file. */
export type Greeting =
  | {
    readonly kind: "serve";
    readonly key: string;
    readonly settings: DataSettings;
    /** The common time, for one that has none yet. */
    readonly now: number;
    /** Time for the connections of one with other settings. */
    readonly drainTimeoutMs: number;
  }
  /** Nobody wants it any more: it listens no more, and ends when its connections have. */
  | { readonly kind: "retire"; readonly key: string; readonly drainTimeoutMs: number }
  | { readonly kind: "end"; readonly key: string };

/** What a data process answers. `pid` is its own. */
export type GreetingAnswer =
  /** It has the settings. `now`: the common time. */
  | { readonly kind: "ours"; readonly pid: number; readonly now: number }
  /** It has others, or is to retire. */
  | { readonly kind: "retired"; readonly pid: number }
  /** Another main process uses it. */
  | { readonly kind: "busy"; readonly pid: number };

/**
 * The permission flags of a data process, which loads libc (`--allow-ffi`): that is as much as all permissions. So it
 * is a process with a user of its own and without secrets, and no other process may do it. With the path of
 * libc, the permission would be as much, and memory could not be shared.
 */
export const DATA_PROCESS_FLAGS: readonly string[] = [
  ...["--no-prompt", "--allow-ffi", "--allow-read", "--allow-write"],
];
