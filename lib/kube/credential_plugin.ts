/**
 * Credential plugins (`users[].user.exec` of a kubeconfig): programs that print a token or a certificate.
 *
 * @module
 */
import * as v from "valibot";
import type { Clock } from "../os/clock.ts";
import { CommandError, type CommandRunner } from "../os/command_runner.ts";
import { Backoff } from "../os/backoff.ts";
import { isPair, readPem } from "./identity_auth.ts";
import {
  type CredentialPlugin,
  KubeAuthError,
  type KubeIdentity,
  type PluginCredentials,
} from "./kube_auth.ts";

/** The plugin's part of the kubeconfig. */
export interface CredentialPluginOptions {
  /** The raw `exec` field. */
  readonly exec: unknown;
  /** The name of that field in messages. */
  readonly field: string;
  /** Folder of the kubeconfig, the base of a relative command. */
  readonly folder: string;
  /** For plugins that ask for it by `provideClusterInfo`. */
  readonly cluster: Pick<KubeIdentity, "server" | "tlsServerName" | "insecure" | "ca"> & {
    /** The extension `client.authentication.k8s.io/exec` of the cluster. */
    readonly config?: unknown;
  };
}

/** A plugin may open a browser or wait for a code, but no user is there to answer. */
const TIMEOUT_MS = 30_000;
/** Room for a token, or a certificate and its key, and for error messages. */
const LONGEST_OUTPUT = 1024 * 1024;
/** New credentials are requested this long before the old ones end. */
const LEEWAY_MS = 10_000;
/** Pauses between runs that are of no use: failed, refused, or ended at once. */
const PAUSES = { initialMs: 1000, maxMs: 60_000 };

/**
 * Returns a plugin that runs when credentials are requested and none are valid. While it is of no
 * use, it runs after growing pauses; in between, the last result stands. Throws a KubeAuthError for
 * an invalid field; whether the program may be started is only known when it runs.
 */
export function credentialPlugin(
  clock: Clock,
  commands: CommandRunner,
  options: CredentialPluginOptions,
): CredentialPlugin {
  const { field, folder } = options;
  const exec = checked(EXEC, options.exec, field);
  const isRelative = exec.command.includes("/") && !exec.command.startsWith("/");
  const command = isRelative ? folder + exec.command : exec.command;
  // The callers' own waits have jitter.
  const backoff = new Backoff(() => 0, PAUSES);
  let current: PluginCredentials | undefined;
  let failure: unknown;
  let isRefused = false;
  let asking: Promise<PluginCredentials> | undefined;
  let ranAt = -Infinity;
  let notBefore = -Infinity;
  const pause = () => notBefore = ranAt + backoff.next(clock.now());
  const isValid = () =>
    current !== undefined && !isRefused &&
    (current.endsAt === undefined || clock.wallNow() < current.endsAt - LEEWAY_MS);
  const run = async () => {
    try {
      current = await runPlugin(commands, { ...exec, command }, options);
      isRefused = false;
      failure = undefined;
      return current;
    } catch (error) {
      failure = error;
      throw error;
    } finally {
      ranAt = clock.now();
      if (!isValid()) pause();
    }
  };
  return {
    name: command,
    async ask() {
      if (isValid()) return current!;
      // Concurrent requests share one run.
      if (asking) return await asking;
      if (clock.now() < notBefore) {
        if (failure !== undefined) throw failure;
        return current!;
      }
      return await (asking = run().finally(() => asking = undefined));
    },
    refuse() {
      // Concurrent requests are refused together.
      if (!isValid()) return;
      isRefused = true;
      pause();
    },
  };
}

const text = v.string("a string");
const needed = v.pipe(
  v.nullish(v.unknown(), ""),
  v.string("a string that is not empty"),
  v.nonEmpty("a string that is not empty"),
);

const EXEC = v.object({
  command: needed,
  apiVersion: needed,
  args: v.nullish(v.array(text, "a list"), []),
  env: v.nullish(
    v.array(v.object({ name: needed, value: v.nullish(text, "") }, "an object"), "a list"),
    [],
  ),
  provideClusterInfo: v.nullish(v.boolean("true or false"), false),
  interactiveMode: v.optional(v.pipe(
    v.unknown(),
    v.check((mode) => mode !== "Always", "'IfAvailable': there is no terminal"),
  )),
}, "an object");

const CREDENTIAL = v.object({
  status: v.pipe(
    v.nullish(v.unknown(), 0),
    v.object({
      token: v.nullish(text),
      clientCertificateData: v.nullish(text),
      clientKeyData: v.nullish(text),
      expirationTimestamp: v.nullish(text),
    }, "an object"),
    v.check(
      ({ token, clientCertificateData: cert, clientKeyData: key }) => !!token || !!cert && !!key,
      "a token, or a certificate and its key",
    ),
  ),
}, "an object");

async function runPlugin(
  commands: CommandRunner,
  { command, args, env, apiVersion, provideClusterInfo }: v.InferOutput<typeof EXEC>,
  { field, cluster }: CredentialPluginOptions,
): Promise<PluginCredentials> {
  const spec: Record<string, unknown> = { interactive: false };
  if (provideClusterInfo) {
    // The data of a CA in a file, too, as kubectl gives it.
    const pem = await readPem(cluster.ca, "CERTIFICATE");
    spec["cluster"] = {
      server: cluster.server,
      "tls-server-name": cluster.tlsServerName,
      "insecure-skip-tls-verify": cluster.insecure || undefined,
      "certificate-authority-data": pem && new TextEncoder().encode(pem).toBase64(),
      config: cluster.config,
    };
  }
  const info = JSON.stringify({ kind: "ExecCredential", apiVersion, spec });
  const failed = (reason: string, cause?: unknown) =>
    new KubeAuthError(`Cannot get credentials of ${field}: ${reason}`, { cause });
  try {
    const result = await commands.run(command, args, {
      env: {
        ...Object.fromEntries(env.map(({ name, value }) => [name, value])),
        KUBERNETES_EXEC_INFO: info,
      },
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

/** The plugin's output is never shown: it contains secrets. */
function readCredentials(text: string, field: string): PluginCredentials {
  let printed: unknown;
  try {
    printed = JSON.parse(text);
  } catch {
    throw new KubeAuthError(`Cannot use ${field}: it has to be an ExecCredential as JSON`);
  }
  const { status } = checked(CREDENTIAL, printed, field);
  const { token, clientCertificateData: cert, clientKeyData: key, expirationTimestamp: end } =
    status;
  if (cert && key && !isPair(cert, key)) {
    throw new KubeAuthError(`Cannot use ${field}: its key does not belong to its certificate`);
  }
  const endsAt = Date.parse(end ?? "");
  return {
    ...(token && { authorization: `Bearer ${token}` }),
    ...(cert && key && { cert, key }),
    endsAt: Number.isNaN(endsAt) ? undefined : endsAt,
  };
}

/** Values are never shown: they may be secrets. */
function checked<Schema extends v.GenericSchema>(
  schema: Schema,
  value: unknown,
  field: string,
): v.InferOutput<Schema> {
  const { success, output, issues } = v.safeParse(schema, value, { abortEarly: true });
  if (success) return output;
  const path = issues[0].path?.map(({ key }) => typeof key === "number" ? `[${key}]` : `.${key}`);
  const where = path ? `'${path.join("").slice(1)}'` : "it";
  throw new KubeAuthError(`Cannot use ${field}: ${where} has to be ${issues[0].message}`);
}
