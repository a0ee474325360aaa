/** The user and the environment of the process. */
export interface UserContext {
  /** User id; `undefined` if the platform has none. */
  readonly uid: number | undefined;
  /** Reads an environment variable. */
  readonly env: (name: string) => string | undefined;
}

/**
 * Returns the default path of the control socket. For root it is fixed, apart from systemd's own
 * variable, so that a caller of `sudo` cannot redirect it.
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
 * Returns the default folder for the record of additions to the machine. It is the runtime
 * directory, because a boot clears both it and the addresses. A record that outlived a boot would
 * claim addresses that another program has added since.
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
