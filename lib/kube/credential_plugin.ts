/**
 * Credential plugins (`users[].user.exec` of a kubeconfig): programs that print a token or a certificate.
 *
 * @module
 */
import type { Clock } from "../os/clock.ts";
import { CommandError, type CommandRunner } from "../os/command_runner.ts";
import { KubeAuthError, type KubeIdentity, type PluginCredentials } from "./kube_identity.ts";
import {
  optionalList,
  optionalString,
  type RawFields,
  requiredObject,
  requiredString,
  ShapeError,
  toFields,
  toText,
} from "./raw_fields.ts";

/** What a plugin is run with. */
interface CredentialPluginDependencies {
  readonly clock: Clock;
  readonly commands: CommandRunner;
}

/** What the kubeconfig says of it. */
interface CredentialPluginOptions {
  /** The `exec` field as it stands there. */
  readonly exec: unknown;
  /** How messages name that field. */
  readonly field: string;
  /** Folder of the kubeconfig: where a command with a relative path lies. */
  readonly folder: string;
}

interface Exec {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly apiVersion: string;
}

interface TimedCredentials extends PluginCredentials {
  /** End, in milliseconds since 1970; `undefined` = good until it is refused. */
  readonly endsAt: number | undefined;
}

/** A plugin may open a browser or wait for a code; there is nobody to answer. */
const TIMEOUT_MS = 30_000;
/** A token or a certificate and its key, with room for complaints. */
const LONGEST_OUTPUT = 1024 * 1024;
/** New credentials are asked for so long before the end of the former ones. */
const LEEWAY_MS = 10_000;

/**
 * A plugin that is run when credentials are asked for and none are left. Throws a KubeAuthError for a field
 * that it cannot use; whether the program may be run is seen when it is.
 */
export function credentialPlugin(
  dependencies: CredentialPluginDependencies,
  options: CredentialPluginOptions,
): NonNullable<KubeIdentity["plugin"]> {
  const exec = readExec(options);
  let current: TimedCredentials | undefined;
  let asking: Promise<TimedCredentials> | undefined;
  return {
    name: exec.command,
    async ask() {
      const { clock } = dependencies;
      const isLeft = current !== undefined &&
        (current.endsAt === undefined || clock.wallNow() < current.endsAt - LEEWAY_MS);
      if (isLeft) return current!;
      // Requests that come together wait for one and the same run.
      asking ??= runPlugin(dependencies, { exec, field: options.field })
        .finally(() => asking = undefined);
      return current = await asking;
    },
  };
}

function readExec({ exec, field, folder }: CredentialPluginOptions): Exec {
  return checked(field, () => {
    const fields = toFields(exec);
    if (fields.interactiveMode === "Always") {
      throw new ShapeError("interactiveMode", "Always", "'IfAvailable': there is no terminal");
    }
    const command = requiredString(fields, "command");
    const env = optionalList(fields, "env", (entry): [string, string] => {
      const variable = toFields(entry);
      return [requiredString(variable, "name"), optionalString(variable, "value") ?? ""];
    });
    return {
      command: command.includes("/") && !command.startsWith("/") ? folder + command : command,
      args: optionalList(fields, "args", toText) ?? [],
      env: Object.fromEntries(env ?? []),
      apiVersion: requiredString(fields, "apiVersion"),
    };
  });
}

async function runPlugin(
  { commands }: CredentialPluginDependencies,
  { exec, field }: { readonly exec: Exec; readonly field: string },
): Promise<TimedCredentials> {
  const { command, args, apiVersion } = exec;
  const info = { kind: "ExecCredential", apiVersion, spec: { interactive: false } };
  const env = { ...exec.env, KUBERNETES_EXEC_INFO: JSON.stringify(info) };
  const failed = (reason: string, cause?: unknown) =>
    new KubeAuthError(`Cannot get credentials of ${field}: ${reason}`, { cause });
  try {
    const result = await commands.run(command, args, {
      env,
      timeoutMs: TIMEOUT_MS,
      longestOutput: LONGEST_OUTPUT,
    });
    if (result.code !== 0) {
      const words = result.stderr.trim().slice(0, 200);
      throw failed(`'${command}' ended with exit code ${result.code}: ${words}`);
    }
    return readCredentials(result.stdout, `${field}, printed by '${command}'`);
  } catch (error) {
    throw error instanceof CommandError ? failed(error.message, error) : error;
  }
}

/** What the plugin printed is never shown: it holds secrets. */
function readCredentials(text: string, field: string): TimedCredentials {
  let printed: unknown;
  try {
    printed = JSON.parse(text);
  } catch {
    throw new KubeAuthError(`Cannot use ${field}: it has to be an ExecCredential as JSON`);
  }
  return checked(field, () => requiredObject(toFields(printed), "status", readStatus));
}

function readStatus(status: RawFields): TimedCredentials {
  const token = optionalString(status, "token");
  const cert = optionalString(status, "clientCertificateData");
  const key = optionalString(status, "clientKeyData");
  const end = optionalString(status, "expirationTimestamp");
  if (!token && !(cert && key)) {
    throw new ShapeError("", "(hidden)", "a token, or a certificate and its key");
  }
  return {
    ...(token && { authorization: `Bearer ${token}` }),
    ...(cert && key && { cert, key }),
    endsAt: end === undefined || Number.isNaN(Date.parse(end)) ? undefined : Date.parse(end),
  };
}

function checked<T>(field: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof ShapeError)) throw error;
    const where = error.path === "" ? "it" : `'${error.path}'`;
    throw new KubeAuthError(`Cannot use ${field}: ${where} has to be ${error.wanted}`);
  }
}
