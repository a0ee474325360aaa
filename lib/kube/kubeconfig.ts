/**
 * The API server and the identity: from a kubeconfig, a pod's service account, or `--master` alone.
 * Only this file imports `@kubernetes/client-node`, and only its parser of clusters, users and
 * contexts: the module with `KubeConfig` also loads an HTTP client and every API type, 10 MB of
 * unused memory.
 *
 * @module
 */
import { newClusters, newContexts, newUsers } from "@kubernetes/client-node/dist/config_types.js";
import { parse } from "@std/yaml";
import * as v from "valibot";
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import { formatHostPort } from "../net/port.ts";
import type { Clock } from "../os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../os/command_runner.ts";
import { readTextUpTo } from "../os/read_text_up_to.ts";
import { credentialPlugin, type CredentialPluginOptions } from "./credential_plugin.ts";
import { IdentityAuth } from "./identity_auth.ts";
import {
  type CredentialPlugin,
  type KubeAuth,
  KubeAuthError,
  type KubeIdentity,
} from "./kube_auth.ts";

/** The folder in which the kubelet puts a service account's files. */
const SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount";

/** Makes plugins from their part of a kubeconfig. */
type PluginOf = (options: CredentialPluginOptions) => CredentialPlugin;

/**
 * Finds the API server and reads the credentials. Throws a {@linkcode KubeAuthError} that names
 * file, field and remedy. Later problems with the files are logged, and the former credentials stay
 * in use. `commands` runs credential plugins.
 */
export async function loadKubeAuth(
  { clock, logger, commands = systemCommandRunner }: {
    readonly clock: Clock;
    readonly logger: Logger;
    readonly commands?: CommandRunner;
  },
  options: {
    /** Path of the kubeconfig; by default the files of `KUBECONFIG`, then the pod's service account. */
    readonly kubeconfig?: string;
    /** The context of the kubeconfig. @default {its current one} */
    readonly context?: string;
    /** URL of the server, overriding the found one. */
    readonly master?: string;
    readonly env: (name: string) => string | undefined;
    /** @default {"/var/run/secrets/kubernetes.io/serviceaccount"} */
    readonly serviceAccountFolder?: string;
  },
): Promise<KubeAuth> {
  // A plugin stays, with its credentials, while its part of the kubeconfig is the same.
  let known: { readonly text: string; readonly plugin: CredentialPlugin } | undefined;
  const pluginOf: PluginOf = (part) => {
    const text = JSON.stringify(part);
    if (known?.text !== text) known = { text, plugin: credentialPlugin(clock, commands, part) };
    return known.plugin;
  };
  const { kubeconfig, master, env, serviceAccountFolder = SERVICE_ACCOUNT_FOLDER } = options;
  const readIdentity = async () => {
    const files = kubeconfig ? [kubeconfig] : (env("KUBECONFIG") ?? "").split(":").filter(Boolean);
    return files.length > 0
      ? identityOf(await readFiles(files), options, pluginOf)
      : await findAccount(serviceAccountFolder, master, env);
  };
  const identity = await readIdentity();
  const auth = new IdentityAuth(logger, readIdentity, identity);
  await auth.load();
  await warnOfOpenFiles(identity, logger);
  if (identity.insecure) {
    logger.warn(
      "The API server's certificate is not checked: anyone on the network path can read the token",
      { field: "insecure-skip-tls-verify", file: identity.file },
    );
  }
  return auth;
}

/**
 * Warns of a kubeconfig, key or token that every user can read or write. The kubelet is responsible
 * for a pod's own files.
 */
async function warnOfOpenFiles(identity: KubeIdentity, logger: Logger): Promise<void> {
  if (identity.source === "in-cluster account") return;
  const { file, clusterFile, key, tokenFile } = identity;
  for (
    const path of [file, clusterFile, key && "file" in key ? key.file : undefined, tokenFile?.file]
  ) {
    if (path === undefined) continue;
    const mode = (await Deno.stat(path)).mode ?? 0;
    const verbs = [...(mode & 0o004 ? ["read"] : []), ...(mode & 0o002 ? ["write"] : [])];
    if (verbs.length === 0) continue;
    logger.warn("File with credentials is open to every user of this machine", {
      file: path,
      othersMay: verbs.join(" and "),
      cure: `chmod 600 ${path}`,
    });
  }
}

/** The identity of a pod's service account, or none with `--master` alone. */
async function findAccount(
  folder: string,
  master: string | undefined,
  env: (name: string) => string | undefined,
): Promise<KubeIdentity> {
  const [host, port] = [env("KUBERNETES_SERVICE_HOST"), env("KUBERNETES_SERVICE_PORT")];
  const token = `${folder}/token`;
  const isPod = await Deno.stat(token).then(() => true, () => false);
  if (isPod && (master !== undefined || host && port)) {
    return {
      server: master === undefined
        ? `https://${formatHostPort(host!, Number(port))}`
        : serverUrl("--master", master, { usesTls: true }),
      source: "in-cluster account",
      ca: { field: "the service account's ca.crt", file: `${folder}/ca.crt` },
      insecure: false,
      tokenFile: { field: "the service account's token", file: token },
    };
  }
  if (master !== undefined) {
    const server = serverUrl("--master", master, { usesTls: false });
    return { server, source: "--master alone", insecure: false };
  }
  throw new KubeAuthError(
    "Cannot find the API server: there is no --kubeconfig, and this is no pod with a service account; " +
      "give --kubeconfig FILE (on a k3s node /var/lib/rancher/k3s/agent/kubeproxy.kubeconfig), " +
      "or --manifests PATH to do without an API server",
  );
}

/** A file, with its entries. */
interface KubeconfigFile {
  readonly file: string;
  readonly document: Readonly<Record<string, unknown>>;
  readonly clusters: ReturnType<typeof newClusters>;
  readonly users: ReturnType<typeof newUsers>;
  readonly contexts: ReturnType<typeof newContexts>;
}

function unusableFile(file: string, reason: string, cause?: unknown): KubeAuthError {
  return new KubeAuthError(`Cannot use kubeconfig '${file}': ${reason}`, { cause });
}

/** Reads the files of a list. As for kubectl, some of several may be missing. */
async function readFiles(files: readonly string[]): Promise<readonly KubeconfigFile[]> {
  const found: KubeconfigFile[] = [];
  for (const file of files) {
    const isThere = await Deno.stat(file).then(() => true, () => false);
    if (isThere || files.length === 1) found.push(await readFile(file));
  }
  return found.length > 0 ? found : [await readFile(files[0]!)];
}

async function readFile(file: string): Promise<KubeconfigFile> {
  let raw: unknown;
  const text = await readText(file);
  try {
    raw = parse(text);
  } catch (error) {
    // The message and its cause quote the file, which may contain a token.
    const [place = ""] = / at line \d+, column \d+/.exec(messageOf(error)) ?? [];
    throw unusableFile(file, `it is not YAML${place}`);
  }
  const problem = shapeProblem(raw);
  if (problem) throw unusableFile(file, problem);
  const document = (raw ?? {}) as Record<string, unknown>;
  try {
    return {
      ...{ file, document },
      clusters: newClusters(document["clusters"]),
      users: newUsers(document["users"]),
      contexts: newContexts(document["contexts"]),
    };
  } catch (cause) {
    throw unusableFile(file, messageOf(cause), cause);
  }
}

/** Finds a context, with its cluster and user. The first file that has an entry wins, as for kubectl. */
function identityOf(
  files: readonly KubeconfigFile[],
  { context: wanted, master }: { readonly context?: string; readonly master?: string },
  pluginOf: PluginOf,
): KubeIdentity {
  const all = files.map(({ file }) => file).join(":");
  const current = wanted ??
    files.map(({ document }) => document["current-context"]).find(Boolean) ?? "";
  const contexts = files.flatMap((each) => each.contexts);
  const context = contexts.find(({ name }) => name === current);
  if (current === "" || !context) {
    const known = contexts.map(({ name }) => `'${name}'`).join(", ") || "none";
    const field = wanted === undefined ? "current-context" : "--context";
    throw unusableFile(all, `${field} is '${current}', and its contexts are: ${known}`);
  }
  const unknown = (list: "cluster" | "user", name: string) =>
    unusableFile(
      all,
      `contexts['${current}'].context.${list} is '${name}', which is not in '${list}s'`,
    );
  const clusterFile = files.find(({ clusters }) =>
    clusters.some(({ name }) => name === context.cluster)
  );
  if (!clusterFile) throw unknown("cluster", context.cluster);
  const cluster = clusterFile.clusters.find(({ name }) => name === context.cluster)!;
  // A context may have no user.
  const userFile = context.user
    ? files.find(({ users }) => users.some(({ name }) => name === context.user))
    : clusterFile;
  if (!userFile) throw unknown("user", context.user!);
  const user = userFile.users.find(({ name }) => name === context.user) ?? { name: "" };

  // As in kubectl, a relative path starts at the folder of its file, and data has precedence over it.
  const folderOf = ({ file }: KubeconfigFile) => file.slice(0, file.lastIndexOf("/") + 1) || "./";
  const absolute = (of: KubeconfigFile, path: string) =>
    path.startsWith("/") ? path : folderOf(of) + path;
  const pem = (
    of: KubeconfigFile,
    field: string,
    [data, path]: readonly [data: string | undefined, path: string | undefined],
  ) => {
    if (data) return { field: `${field}-data of '${of.file}'`, base64: data };
    return path ? { field: `${field} of '${of.file}'`, file: absolute(of, path) } : undefined;
  };
  const { file } = userFile;
  const unusable = (reason: string) => unusableFile(file, reason);
  const clusterPath = `clusters['${cluster.name}'].cluster`;
  const userPath = `users['${user.name}'].user`;
  const { skipTLSVerify: insecure, tlsServerName } = cluster;
  if (cluster.proxyUrl) {
    throw unusableFile(clusterFile.file, `${clusterPath}.proxy-url is not supported; remove it`);
  }
  const ca = pem(clusterFile, `${clusterPath}.certificate-authority`, [
    cluster.caData,
    cluster.caFile,
  ]);
  if (ca && insecure) {
    const both = "certificate-authority and insecure-skip-tls-verify exclude each other";
    throw unusableFile(clusterFile.file, `${clusterPath}: ${both}; remove the second`);
  }
  for (
    const [name, value] of [["as", user.impersonateUser], ["auth-provider", user.authProvider]]
  ) {
    if (!value) continue;
    const cure = "remove it, or use a credential plugin (exec), a token or a certificate";
    throw unusable(`${userPath}.${name} is not supported; ${cure}`);
  }
  const cert = pem(userFile, `${userPath}.client-certificate`, [user.certData, user.certFile]);
  const key = pem(userFile, `${userPath}.client-key`, [user.keyData, user.keyFile]);
  const field = master === undefined
    ? `${clusterPath}.server of '${clusterFile.file}'`
    : "--master";
  const usesTls = cert !== undefined || ca !== undefined || insecure;
  const known = {
    server: serverUrl(field, master ?? cluster.server, { usesTls }),
    insecure,
    ...(ca && { ca }),
    ...(tlsServerName && { tlsServerName }),
  };
  if (!cert !== !key) {
    throw unusable(`${userPath}: client-certificate and client-key must be given together`);
  }
  const { token, username, password = "" } = user;
  const basic = username && new TextEncoder().encode(`${username}:${password}`).toBase64();
  const authorization = token ? `Bearer ${token}` : basic && `Basic ${basic}`;
  // client-node knows neither `tokenFile` (a request would have no token) nor extensions.
  const tokenFile = entryOf(userFile.document["users"], user.name)?.user?.tokenFile;
  const { extensions } = entryOf(clusterFile.document["clusters"], cluster.name)?.cluster ?? {};
  const config = entryOf(extensions, "client.authentication.k8s.io/exec")?.extension;
  return {
    source: "kubeconfig",
    file,
    ...(clusterFile !== userFile && { clusterFile: clusterFile.file }),
    ...known,
    ...(cert && { cert }),
    ...(key && { key }),
    ...(authorization && { authorization }),
    ...(tokenFile && {
      tokenFile: {
        field: `${userPath}.tokenFile of '${file}'`,
        file: absolute(userFile, tokenFile),
      },
    }),
    ...(user.exec && {
      plugin: pluginOf({
        exec: user.exec,
        field: `${userPath}.exec of '${file}'`,
        folder: folderOf(userFile),
        cluster: { ...known, ...(config !== undefined && { config }) },
      }),
    }),
  };
}

function entryOf(list: unknown, name: string) {
  return (Array.isArray(list) ? list : []).find((entry) => entry?.name === name);
}

/** The size of a hundred clusters with certificates; a longer file is no kubeconfig. */
const MAX_BYTES = 1024 * 1024;

async function readText(file: string): Promise<string> {
  try {
    return await readTextUpTo(file, MAX_BYTES);
  } catch (cause) {
    const isMissing = cause instanceof Deno.errors.NotFound;
    const reason = isMissing
      ? "there is no such file; --kubeconfig or clientConnection.kubeconfig has to name one"
      : messageOf(cause);
    const message = `Cannot read kubeconfig '${file}': ${reason}`;
    throw new KubeAuthError(message, isMissing ? {} : { cause });
  }
}

const TEXT = v.nullish(v.string("text"));
const FLAG = v.nullish(v.boolean("true or false"));

const fields = (entries: v.ObjectEntries) => v.nullish(v.object(entries, "fields"));
const named = (key: string, entries: v.ObjectEntries) =>
  v.nullish(v.array(v.object({ name: TEXT, [key]: fields(entries) }, "fields"), "a list"));
/** Fields that are text, also with `-data` in their name. */
const texts = (...names: readonly string[]) =>
  Object.fromEntries(names.flatMap((name) => [[name, TEXT], [`${name}-data`, TEXT]]));

/** The fields that kube-relay reads; `exec` is checked when the plugin is created. */
const SHAPE = v.nullish(v.object({
  "current-context": TEXT,
  contexts: named("context", { cluster: TEXT, user: TEXT }),
  clusters: named("cluster", {
    ...texts("server", "certificate-authority", "tls-server-name", "proxy-url"),
    "insecure-skip-tls-verify": FLAG,
  }),
  users: named(
    "user",
    texts("token", "tokenFile", "username", "password", "client-certificate", "client-key"),
  ),
}, "fields"));

/**
 * Returns the first field of a wrong type, e.g. `users[0].user.token has to be text`, or
 * `undefined`. Shows no value, because it may be a secret: `token: 12345` is a number in YAML.
 */
function shapeProblem(raw: unknown): string | undefined {
  const [issue] = v.safeParse(SHAPE, raw, { abortEarly: true }).issues ?? [];
  if (issue === undefined) return undefined;
  const path = (issue.path ?? []).map(({ key }) =>
    typeof key === "number" ? `[${key}]` : `.${String(key)}`
  );
  return `${path.join("").slice(1) || "it"} has to be ${issue.message}`;
}

/**
 * Returns the URL of an API server. HOST:PORT gets a scheme as in client-go: https if any setting
 * of TLS is known (a CA, a certificate), otherwise http. Throws a {@linkcode KubeAuthError} that
 * names the field.
 */
function serverUrl(
  field: string,
  text: string,
  { usesTls }: { readonly usesTls: boolean },
): string {
  const hasScheme = text.includes("://");
  const url = URL.parse(hasScheme ? text : `${usesTls ? "https" : "http"}://${text}`);
  const isHttp = url !== null && /^https?:$/.test(url.protocol);
  if (isHttp && hasScheme) return text;
  if (isHttp && url.pathname === "/" && url.search === "") return url.origin;
  throw new KubeAuthError(
    `Cannot use ${field}: '${text}' has to be a URL such as https://192.0.2.1:6443`,
  );
}
