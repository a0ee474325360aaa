/**
 * Where the control socket and the remembered state are when no flag says so.
 *
 * @module
 */

/** Who runs the process and in what environment. */
export interface UserContext {
  /** User id; `undefined` where the platform has none. */
  readonly uid: number | undefined;
  /** Reads an environment variable. */
  readonly env: (name: string) => string | undefined;
}

/**
 * Path of the control socket. Root's is fixed and takes nothing from the environment but systemd's
 * own variable, so that no caller of `sudo` can lead it elsewhere.
 */
export function defaultControlSocket(context: UserContext): string {
  return `${runtimeDirectory(context)}/control.sock`;
}

function runtimeDirectory({ uid, env }: UserContext): string {
  const unit = firstOf(env("RUNTIME_DIRECTORY"));
  if (unit !== undefined) return unit;
  if (uid === 0) return "/run/kube-relay";
  const session = absolute(env("XDG_RUNTIME_DIR"));
  return session === undefined ? `${home(env)}/.cache/kube-relay` : `${session}/kube-relay`;
}

/**
 * Path of the folder that remembers what was added to the machine. It is the runtime directory,
 * since a boot clears that and the addresses alike: a record that outlived them would claim what
 * somebody else has added since.
 */
export function defaultStateDirectory(context: UserContext): string {
  return runtimeDirectory(context);
}

/** systemd separates several folders by colons. */
function firstOf(paths: string | undefined): string | undefined {
  return absolute(paths?.split(":")[0]);
}

function absolute(path: string | undefined): string | undefined {
  return path?.startsWith("/") ? path.replace(/\/+$/, "") : undefined;
}

function home(env: UserContext["env"]): string {
  const path = absolute(env("HOME"));
  if (path === undefined) {
    throw new RangeError(
      "Cannot choose a folder for socket and state: HOME is not set; give --control-socket and " +
        "--state-dir, or set HOME",
    );
  }
  return path;
}
