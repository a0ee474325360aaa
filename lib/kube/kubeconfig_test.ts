import {
  assert,
  assertEquals,
  assertMatch,
  assertRejects,
  assertStrictEquals,
  assertStringIncludes,
} from "@std/assert";
import { replaceFile } from "../../tests/support/builders/kubeconfig_file.ts";
import { createTestCertificateAuthority } from "../../tests/support/builders/test_certificates.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { systemClock } from "../os/clock.ts";
import { createCommandRunner } from "../os/command_runner.ts";
import { KubeAuthError } from "./kube_auth.ts";
import { loadKubeAuth } from "./kubeconfig.ts";

const CA = "-----BEGIN CERTIFICATE-----\nca\n-----END CERTIFICATE-----\n";
const CERT = "-----BEGIN CERTIFICATE-----\nclient\n-----END CERTIFICATE-----\n";
const KEY = "-----BEGIN EC PRIVATE KEY-----\nkey\n-----END EC PRIVATE KEY-----\n";
const SERVER = "https://192.0.2.1:6443";
const PLUGIN = { apiVersion: "client.authentication.k8s.io/v1", command: "kubelogin" };

interface Kubeconfig {
  readonly cluster?: Record<string, unknown>;
  readonly user?: Record<string, unknown>;
  readonly context?: Record<string, unknown>;
  readonly currentContext?: string;
}

type Options = Partial<Parameters<typeof loadKubeAuth>[1]>;

/** What a plugin prints. */
function printed(status: Record<string, string>) {
  return { stdout: JSON.stringify({ kind: "ExecCredential", status }) };
}

/** A folder with files, and a kubeconfig among them. */
class Folder implements AsyncDisposable {
  readonly logger = new MemoryLogger();
  readonly commands = new FakeCommandRunner();
  readonly clock = new FakeClock(Date.UTC(2026, 0, 1));
  private constructor(readonly path: string) {}

  static async make(kubeconfig?: Kubeconfig): Promise<Folder> {
    const folder = new Folder(await Deno.makeTempDir({ prefix: "kube-relay-kubeconfig-" }));
    if (kubeconfig) await folder.writeKubeconfig(kubeconfig);
    return folder;
  }

  get kubeconfig(): string {
    return `${this.path}/kubeconfig`;
  }

  async write(files: Readonly<Record<string, string>>): Promise<void> {
    for (const [name, text] of Object.entries(files)) {
      await replaceFile(`${this.path}/${name}`, text);
    }
  }

  async writeKubeconfig(
    { cluster, user = {}, context, currentContext = "main" }: Kubeconfig,
  ): Promise<void> {
    const kubeconfig = JSON.stringify({
      clusters: [{ name: "k3s", cluster: { server: `${SERVER}/`, ...cluster } }],
      users: [{ name: "proxy", user }],
      contexts: [{ name: "main", context: { cluster: "k3s", user: "proxy", ...context } }],
      "current-context": currentContext,
    });
    await this.write({ kubeconfig });
  }

  load(options: Options = {}, commands = this.commands) {
    return loadKubeAuth({ clock: this.clock, logger: this.logger, commands }, {
      kubeconfig: this.kubeconfig,
      env: () => undefined,
      serviceAccountFolder: this.path,
      ...options,
    });
  }

  /** Loads without a kubeconfig, with these variables. */
  loadAccount(env: Readonly<Record<string, string>>, master?: string) {
    const { clock, logger, path: serviceAccountFolder } = this;
    return loadKubeAuth({ clock, logger }, {
      env: (name) => env[name],
      serviceAccountFolder,
      ...(master !== undefined && { master }),
    });
  }

  async fails(options?: Options): Promise<string> {
    return (await assertRejects(() => this.load(options), KubeAuthError)).message;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.path, { recursive: true });
  }
}

/** Name, kubeconfig, files next to it, and what it gives. */
const GOOD: readonly (readonly [
  name: string,
  kubeconfig: Kubeconfig,
  expect: { readonly tls?: object; readonly authorization?: string; readonly method: string },
])[] = [
  ["data", {
    cluster: { "certificate-authority-data": btoa(CA), "tls-server-name": "kubernetes" },
    user: { "client-certificate-data": btoa(CERT), "client-key-data": btoa(KEY) },
  }, {
    tls: { ca: CA, cert: CERT, key: KEY, serverName: "kubernetes", insecure: false },
    method: "client certificate",
  }],
  ["files, by relative paths", {
    cluster: { "certificate-authority": "ca.crt" },
    user: { "client-certificate": "p.crt", "client-key": "./p.key", tokenFile: "token" },
  }, {
    tls: { ca: CA, cert: CERT, key: KEY, insecure: false },
    authorization: "Bearer abc",
    method: "token file",
  }],
  ["data in place of a file, as kubectl does", {
    cluster: { "certificate-authority-data": btoa(CA), "certificate-authority": "missing.crt" },
  }, { tls: { ca: CA, insecure: false }, method: "none" }],
  ["a token", { user: { token: "abc" } }, { authorization: "Bearer abc", method: "token" }],
  ["user name and password", { user: { username: "me", password: "pä" } }, {
    authorization: "Basic bWU6cMOk",
    method: "user name and password",
  }],
  ["no credentials for an http:// server", {
    cluster: { server: "http://127.0.0.1:8001" },
    user: { token: "abc" },
  }, { method: "none (http)" }],
];

for (const [name, kubeconfig, expect] of GOOD) {
  Deno.test(`loadKubeAuth() reads ${name}`, async () => {
    await using folder = await Folder.make(kubeconfig);
    await folder.write({ "ca.crt": CA, "p.crt": CERT, "p.key": KEY, token: "abc\n" });
    const auth = await folder.load();
    const { tls = { insecure: false }, authorization, method } = expect;
    assertEquals([await auth.tls(), await auth.authorization()], [
      { ...tls } as never,
      authorization,
    ]);
    const { server = SERVER } = kubeconfig.cluster ?? {};
    const { kubeconfig: file } = folder;
    assertEquals<unknown>(auth.describe(), { server, source: "kubeconfig", file, method });
    assertEquals(folder.logger.lines, []);
  });
}

Deno.test("loadKubeAuth() uses the server of --master, and gives HOST:PORT a scheme", async () => {
  await using folder = await Folder.make({ user: { token: "abc" } });
  const server = "192.0.2.2:6443";
  const auth = await folder.load({ master: `https://${server}` });
  assertEquals([auth.server, await auth.authorization()], [`https://${server}`, "Bearer abc"]);
  await folder.writeKubeconfig({ cluster: { server, "insecure-skip-tls-verify": true } });
  assertEquals((await folder.load()).server, `https://${server}`);
  await folder.writeKubeconfig({ cluster: { server } });
  assertEquals((await folder.load()).server, `http://${server}`);
  assertEquals((await folder.load({ master: "127.0.0.1:8001" })).server, "http://127.0.0.1:8001");
});

const FAR = "https://192.0.2.8:6443";

Deno.test("loadKubeAuth() joins the files of KUBECONFIG as kubectl does", async () => {
  await using folder = await Folder.make({ user: { token: "first" } });
  const entry = (name: string, token: string) => ({ name, user: { token } });
  await Deno.mkdir(`${folder.path}/sub`);
  await folder.write({
    "sub/ca.crt": CA,
    "sub/clusters": JSON.stringify({
      clusters: [
        { name: "k3s", cluster: { server: "https://192.0.2.9:6443" } },
        { name: "far", cluster: { server: FAR, "certificate-authority": "ca.crt" } },
      ],
      users: [entry("proxy", "second"), entry("other", "other")],
    }),
    contexts: JSON.stringify({
      contexts: [{ name: "far", context: { cluster: "far", user: "proxy" } }],
      "current-context": "far",
    }),
  });
  await Deno.chmod(`${folder.path}/sub/clusters`, 0o666);
  const list = (...names: readonly string[]) =>
    names.map((name) => `${folder.path}/${name}`).join(":");
  const load = (KUBECONFIG: string, context?: string) =>
    folder.load({
      ...{ kubeconfig: "", env: (name) => name === "KUBECONFIG" ? KUBECONFIG : undefined },
      ...(context !== undefined && { context }),
    });
  const all = list("missing", "kubeconfig", "sub/clusters", "contexts");
  const [current, far] = [await load(all), await load(all, "far")];
  assertEquals([current.server, await current.authorization()], [SERVER, "Bearer first"]);
  // Its CA is next to the file of the cluster, and its user that of the first file.
  assertEquals([far.server, (await far.tls()).ca, await far.authorization()], [
    FAR,
    CA,
    "Bearer first",
  ]);
  assertStringIncludes(
    folder.logger.lines.map(({ fields }) => fields?.["file"]).join(),
    "sub/clusters",
  );
  const other = await load(`:${list("contexts", "sub/clusters")}`);
  assertEquals([other.server, await other.authorization()], [FAR, "Bearer second"]);
  for (
    const [files, context, message] of [
      [all, "none", "--context is 'none', and its contexts are: 'main', 'far'"],
      [
        list("contexts"),
        undefined,
        "contexts['far'].context.cluster is 'far', which is not in 'clusters'",
      ],
      [list("missing", "gone"), undefined, "missing': there is no such file"],
    ] as const
  ) {
    await assertRejects(() => load(files, context), KubeAuthError, message);
  }
});

Deno.test("loadKubeAuth() finds KUBECONFIG, then the account of the pod, then --master alone", async () => {
  await using folder = await Folder.make({});
  const KUBECONFIG = folder.kubeconfig;
  assertEquals((await folder.loadAccount({ KUBECONFIG })).describe().file, KUBECONFIG);
  await folder.write({ token: "abc", "ca.crt": CA });
  await Deno.chmod(`${folder.path}/token`, 0o644);
  const pod = (host: string) => ({
    KUBERNETES_SERVICE_HOST: host,
    KUBERNETES_SERVICE_PORT: host && "6443",
  });
  const auth = await folder.loadAccount(pod("fd00::1"));
  const { server, source } = auth.describe();
  assertEquals([server, source], ["https://[fd00::1]:6443", "in-cluster account"]);
  assertEquals([await auth.tls(), await auth.authorization()], [
    { ca: CA, insecure: false },
    "Bearer abc",
  ]);
  // The kubelet gives those files their mode; no user can change them.
  assertEquals(folder.logger.lines, []);
  const withMaster = (await folder.loadAccount(pod(""), SERVER)).describe();
  assertEquals([withMaster.server, withMaster.source], [SERVER, "in-cluster account"]);
  await Deno.remove(`${folder.path}/token`);
  for (const host of ["", "10.96.0.1"]) {
    const loading = () => folder.loadAccount(pod(host));
    const { message } = await assertRejects(loading, KubeAuthError, "Cannot find the API server");
    for (const part of ["--kubeconfig", "--manifests", "k3s"]) assertStringIncludes(message, part);
  }
  const alone = (await folder.loadAccount({}, "http://127.0.0.1:8080")).describe();
  assertEquals([alone.server, alone.source], ["http://127.0.0.1:8080", "--master alone"]);
});

Deno.test("loadKubeAuth() keeps an identity whole when the kubeconfig names another server", async () => {
  await using folder = await Folder.make();
  const write = async (server: string, credentials: string) => {
    const ca = CA.replace("ca", credentials);
    // The files of both clusters have the same names.
    await folder.write({ "ca.crt": ca, token: credentials });
    await folder.writeKubeconfig({
      cluster: { server, "certificate-authority": "ca.crt" },
      user: { tokenFile: "token" },
    });
    return { ca, token: `Bearer ${credentials}` };
  };
  const there = "https://192.0.2.2:6443";
  const first = await write(SERVER, "first");
  const auth = await folder.load();
  const shows = async ({ ca, token }: typeof first) => {
    assertEquals(await auth.authorization(), token);
    assertEquals((await auth.tls()).ca, ca);
  };
  await shows(first);
  await write(there, "second");
  await shows(first);
  await auth.refresh();
  await shows(first);
  assertEquals(folder.logger.lines.map(({ fields }) => fields.error), [
    `Cannot use the changed kubeconfig '${folder.kubeconfig}': its server is '${there}' now, and ` +
    `was '${SERVER}'; restart kube-relay to connect to it`,
  ]);
  await shows(await write(SERVER, "third"));
});

Deno.test("loadKubeAuth() takes a changed kubeconfig whole or not at all, and after a refusal in any case", async () => {
  await using folder = await Folder.make({ user: { token: "one" } });
  const auth = await folder.load();
  const before = await auth.tls();
  await folder.writeKubeconfig({
    cluster: { "certificate-authority": "later.crt" },
    user: { token: "two" },
  });
  await auth.refresh();
  assertEquals([await auth.tls(), await auth.authorization()], [before, "Bearer one"]);
  await folder.write({ "later.crt": CA });
  assertEquals([(await auth.tls()).ca, await auth.authorization()], [CA, "Bearer two"]);
  const { mtime } = await Deno.stat(folder.kubeconfig);
  const text = await Deno.readTextFile(folder.kubeconfig);
  await Deno.writeTextFile(folder.kubeconfig, text.replace("two", "six"));
  await Deno.utime(folder.kubeconfig, mtime!, mtime!);
  assertEquals(await auth.authorization(), "Bearer two", "it looks the same");
  await auth.refresh();
  assertEquals(await auth.authorization(), "Bearer six");
});

Deno.test("loadKubeAuth() names both files of a certificate and a key that do not belong together", async () => {
  const user = { "client-certificate": "p.crt", "client-key": "p.key" };
  await using folder = await Folder.make({ user });
  const authority = await createTestCertificateAuthority();
  const one = await authority.issue({ commonName: "one" });
  const two = await authority.issue({ commonName: "two" });
  await folder.write({ "p.crt": one.cert, "p.key": two.key });
  assertEquals(
    await folder.fails(),
    `Cannot use the client certificate: the key of '${folder.path}/p.key' does not belong to the ` +
      `certificate of '${folder.path}/p.crt'; replace one of the two`,
  );
  // A rotation replaces one file after the other.
  await folder.write({ "p.key": one.key });
  const auth = await folder.load();
  await folder.write({ "p.crt": two.cert });
  assertEquals((await auth.tls()).cert, one.cert);
  await folder.write({ "p.key": two.key });
  assertEquals((await auth.tls()).cert, two.cert);
  const { cert, key } = { cert: one.cert, key: two.key };
  const status = { clientCertificateData: cert, clientKeyData: key };
  folder.commands.on("kubelogin", printed(status));
  await folder.writeKubeconfig({ user: { exec: PLUGIN } });
  const plugin = await folder.load();
  const reason = "its key does not belong to its certificate";
  await assertRejects(() => plugin.tls(), KubeAuthError, reason);
});

Deno.test("loadKubeAuth() gives the same material until a file changes, and keeps the last good one", async () => {
  await using folder = await Folder.make({
    cluster: { "certificate-authority": "ca.crt" },
    user: { tokenFile: "token" },
  });
  const pem = (text: string) => CA.replace("ca", text);
  await folder.write({ "ca.crt": pem("one"), token: "one\n" });
  const auth = await folder.load();
  const first = await auth.tls();
  // Written again with the same content: no new connection for that.
  await folder.write({ "ca.crt": pem("one") });
  assertStrictEquals(await auth.tls(), first);
  await folder.write({ "ca.crt": "half of a" });
  for (let time = 0; time < 2; time++) assertStrictEquals(await auth.tls(), first);
  await Deno.remove(`${folder.path}/ca.crt`);
  for (let time = 0; time < 2; time++) assertStrictEquals(await auth.tls(), first);
  assertEquals(folder.logger.lines.map(({ level }) => level), ["warn", "warn"]);
  await folder.write({ "ca.crt": pem("two"), token: "two" });
  assertEquals([(await auth.tls()).ca, await auth.authorization()], [pem("two"), "Bearer two"]);
  await Deno.remove(`${folder.path}/token`);
  for (let time = 0; time < 2; time++) assertEquals(await auth.authorization(), "Bearer two");
  assertEquals(folder.logger.lines.length, 3);
});

/** Name, kubeconfig, and parts of the message, which also names the kubeconfig. */
const BROKEN: readonly (readonly [string, Kubeconfig, readonly string[]])[] = [
  ["an unknown context", { currentContext: "prod" }, ["current-context is 'prod'", "'main'"]],
  ["an unknown cluster", { context: { cluster: "x" } }, ["['main'].context.cluster is 'x'"]],
  ["an unknown user", { context: { user: "x" } }, ["contexts['main'].context.user is 'x'"]],
  ["a cluster without server", { cluster: { server: "" } }, ["[0].cluster.server is missing"]],
  [
    "a server that is no URL",
    { cluster: { server: "ssh://192.0.2.1" } },
    ["clusters['k3s'].cluster.server of", "'ssh://192.0.2.1' has to be a URL such as https://"],
  ],
  [
    "a missing CA file",
    { cluster: { "certificate-authority": "no.crt" } },
    ["clusters['k3s'].cluster.certificate-authority of", "no.crt"],
  ],
  [
    "a CA that is no PEM",
    { cluster: { "certificate-authority-data": btoa("oops") } },
    ["certificate-authority-data of", "has no PEM block 'CERTIFICATE'"],
  ],
  [
    "data that is no base64",
    { cluster: { "certificate-authority-data": "%%" } },
    ["certificate-authority-data of", "has to be PEM text in base64"],
  ],
  [
    "a certificate without its key",
    { user: { "client-certificate-data": btoa(CERT) } },
    ["users['proxy'].user: client-certificate and client-key must be given together"],
  ],
  [
    "a CA together with insecure-skip-tls-verify",
    { cluster: { "certificate-authority-data": btoa(CA), "insecure-skip-tls-verify": true } },
    ["exclude each other"],
  ],
  ["an endless token file", { user: { tokenFile: "/dev/zero" } }, ["more than 1048576 bytes"]],
  ["a missing token file", { user: { tokenFile: "no" } }, ["user.tokenFile of", "/no'"]],
  ["an empty token file", { user: { tokenFile: "empty" } }, ["one token and nothing else"]],
  ["a token file of two words", { user: { tokenFile: "words" } }, ["one token and nothing else"]],
  ["a token file with a header", { user: { tokenFile: "lines" } }, ["one token and nothing else"]],
  ["impersonation", { user: { as: "admin" } }, ["users['proxy'].user.as is not supported"]],
  [
    "an auth-provider",
    { user: { "auth-provider": { name: "oidc" } } },
    ["user.auth-provider is not supported", "exec"],
  ],
  ["a proxy", { cluster: { "proxy-url": "socks5://x" } }, ["cluster.proxy-url is not supported"]],
  ["a number as a token", { user: { token: 12345 } }, ["users[0].user.token has to be text"]],
  ...([
    [{ ...PLUGIN, command: "" }, "'command' has to be a string that is not empty"],
    [{ command: "kubelogin" }, "'apiVersion' has to be"],
    [{ ...PLUGIN, args: "get-token" }, "'args' has to be a list"],
    [{ ...PLUGIN, args: [1] }, "'args[0]' has to be a string"],
    [{ ...PLUGIN, env: [{ value: "x" }] }, "'env[0].name' has to be"],
    [{ ...PLUGIN, provideClusterInfo: "yes" }, "'provideClusterInfo' has to be true or false"],
    [{ ...PLUGIN, interactiveMode: "Always" }, "there is no terminal"],
    ["kubelogin", "it has to be an object"],
  ] as const).map(([exec, part]) =>
    [`the plugin ${JSON.stringify(exec)}`, { user: { exec } }, [
      "['proxy'].user.exec of",
      part,
    ]] as const
  ),
];

for (const [name, kubeconfig, parts] of BROKEN) {
  Deno.test(`loadKubeAuth() refuses ${name}, and names file, field and cure`, async () => {
    await using folder = await Folder.make(kubeconfig);
    await folder.write({ empty: "", words: "two words", lines: "token\nX-Header: evil" });
    const message = await folder.fails();
    for (const part of [folder.kubeconfig, ...parts]) assertStringIncludes(message, part);
    assert(!message.includes("12345"), message);
  });
}

Deno.test("loadKubeAuth() names the line of a YAML error, and shows nothing of it", async () => {
  await using folder = await Folder.make();
  await folder.write({ kubeconfig: "users:\n- user:\n    token: [s3cret\n  x: y\n" });
  const { message, cause } = await assertRejects(() => folder.load(), KubeAuthError);
  assertStringIncludes(message, `Cannot use kubeconfig '${folder.kubeconfig}':`);
  assertMatch(message, /line \d/);
  assertEquals([message.includes("s3cret"), cause], [false, undefined]);
});

Deno.test("loadKubeAuth() names what cannot be read: no file, an endless one, a --master that is no URL", async () => {
  await using folder = await Folder.make();
  const { message, cause } = await assertRejects(() => folder.load(), KubeAuthError);
  const reason =
    "there is no such file; --kubeconfig or clientConnection.kubeconfig has to name one";
  assertEquals([message, cause], [
    `Cannot read kubeconfig '${folder.kubeconfig}': ${reason}`,
    undefined,
  ]);
  const endless = await folder.fails({ kubeconfig: "/dev/zero" });
  assertStringIncludes(endless, "Cannot read kubeconfig '/dev/zero': it has more than");
  await folder.writeKubeconfig({});
  const master = await folder.fails({ master: "ftp://192.0.2.1" });
  assertStringIncludes(master, "Cannot use --master: 'ftp://192.0.2.1'");
});

Deno.test("loadKubeAuth() warns of files that other users may read or write, and of a certificate that is not checked", async () => {
  await using folder = await Folder.make({
    cluster: { "insecure-skip-tls-verify": true },
    user: { "client-certificate": "p.crt", "client-key": "p.key", tokenFile: "token" },
  });
  await folder.write({ "p.crt": CERT, "p.key": KEY, token: "s3cret" });
  const modes = { kubeconfig: 0o644, "p.crt": 0o666, "p.key": 0o606, token: 0o600 };
  for (const [name, mode] of Object.entries(modes)) {
    await Deno.chmod(`${folder.path}/${name}`, mode);
  }
  const auth = await folder.load();
  assertEquals(
    folder.logger.lines.map(({ level, fields: { file, othersMay, field } }) => {
      return [level, file, othersMay ?? field];
    }),
    [
      ["warn", folder.kubeconfig, "read"],
      ["warn", `${folder.path}/p.key`, "read and write"],
      ["warn", folder.kubeconfig, "insecure-skip-tls-verify"],
    ],
  );
  const said = JSON.stringify([auth.describe(), folder.logger.lines]);
  assert(!said.includes("s3cret") && !said.includes("BEGIN"));
});

/** A folder whose user has a plugin. */
async function withPlugin(
  answer: Parameters<FakeCommandRunner["on"]>[1],
  exec: Record<string, unknown> = PLUGIN,
): Promise<Folder & { readonly auth: Awaited<ReturnType<Folder["load"]>> }> {
  const folder = await Folder.make({ user: { exec } });
  folder.commands.on("kubelogin", answer);
  return Object.assign(folder, { auth: await folder.load() });
}

Deno.test("a credential plugin gives a token, and a certificate that stays the same material", async () => {
  const status = (cert: string) =>
    printed({ token: "t", clientCertificateData: cert, clientKeyData: "key" });
  await using folder = await withPlugin(status("one"), { ...PLUGIN, args: ["get-token"] });
  const { auth, clock, commands } = folder;
  assertEquals(auth.describe().method, "credential plugin 'kubelogin'");
  // Callers that come together share one run.
  const asked = await Promise.all([auth.authorization(), auth.authorization(), auth.tls()]);
  assertEquals(asked.slice(0, 2), ["Bearer t", "Bearer t"]);
  const first = await auth.tls();
  assertEquals([first.cert, first.key], ["one", "key"]);
  assertStrictEquals(await auth.tls(), first);
  assertEquals(commands.calls.map(({ line }) => line), ["kubelogin get-token"]);
  commands.on("kubelogin", status("two"));
  await clock.advance(3_600_000);
  await auth.refresh();
  assertEquals(
    (await auth.tls()).cert,
    "two",
    "it is run at once, since it gave the first long ago",
  );
  // Another configuration is another plugin.
  await folder.writeKubeconfig({ user: { exec: { ...PLUGIN, args: ["other"] } } });
  await auth.refresh();
  await auth.authorization();
  assertEquals(commands.calls.at(-1)?.line, "kubelogin other");
});

Deno.test("a credential plugin is asked again 10 s before its credentials end, not sooner", async () => {
  const expirationTimestamp = "2026-01-01T00:01:00Z";
  await using folder = await withPlugin(printed({ token: "t", expirationTimestamp }));
  const { auth, clock, commands } = folder;
  await auth.authorization();
  await clock.advance(49_999);
  await auth.authorization();
  assertEquals(commands.calls.length, 1);
  await clock.advance(1);
  await auth.authorization();
  assertEquals(commands.calls.length, 2);
});

const ENDED = "2025-12-31T23:59:59Z";

for (
  const [name, answer] of [
    ["fails", { code: 1, stderr: "no network" }],
    ["gives credentials that are refused", printed({ token: "t" })],
    ["gives credentials that have ended", printed({ token: "t", expirationTimestamp: ENDED })],
  ] as const
) {
  Deno.test(`a credential plugin waits longer each time between runs while it ${name}`, async () => {
    await using folder = await withPlugin(answer);
    const { auth, clock, commands } = folder;
    const ranAt: number[] = [];
    for (; clock.now() <= 200_000; await clock.advance(250)) {
      const { length } = commands.calls;
      for (let request = 0; request < 2; request++) {
        await auth.authorization().catch(() => {});
        if (commands.calls.length > length && request === 0) ranAt.push(clock.now() / 1000);
        await auth.refresh();
      }
    }
    assertEquals(ranAt, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    commands.on("kubelogin", printed({ token: "later" }));
    await clock.advance(60_000);
    assertEquals(await auth.authorization(), "Bearer later");
  });
}

for (
  const [name, answer, part] of [
    ["is no JSON", { stdout: "please log in: s3cret" }, "has to be an ExecCredential as JSON"],
    ["has no status", { stdout: '{"kind":"s3cret"}' }, "'status' has to be an object"],
    ["has no token", { stdout: '{"status":{"x":"s3cret"}}' }, "has to be a token, or"],
    ["has no key", printed({ clientCertificateData: "s3cret" }), "has to be a token, or"],
    ["has no text", { stdout: '{"status":{"token":{"s3cret":1}}}' }, "'status.token' has to be"],
    ["is a failure", { code: 1, stderr: "no network\n" }, "ended with exit code 1: no network"],
  ] as const
) {
  Deno.test(`a credential plugin is refused whose output ${name}, without showing it`, async () => {
    await using folder = await withPlugin(answer);
    const { message } = await assertRejects(() => folder.auth.authorization(), KubeAuthError);
    for (const each of [part, "users['proxy'].user.exec of"]) assertStringIncludes(message, each);
    assert(!message.includes("s3cret"), message);
  });
}

Deno.test("a credential plugin gets its variables, and the cluster if it asks for it", async () => {
  await using folder = await Folder.make();
  const program = "#!/bin/sh\n" +
    `printf '{"status":{"token":"%s"}}' "$EXTRA.$(printf %s "$KUBERNETES_EXEC_INFO" | base64 -w0)"`;
  await folder.write({ plugin: program, "ca.crt": CA });
  await Deno.chmod(`${folder.path}/plugin`, 0o700);
  const asked = async (exec: Record<string, unknown>) => {
    await folder.writeKubeconfig({
      cluster: {
        "certificate-authority": "ca.crt",
        "tls-server-name": "kubernetes",
        extensions: [
          { name: "other", extension: { audience: "wrong" } },
          { name: "client.authentication.k8s.io/exec", extension: { audience: "kube" } },
        ],
      },
      // Relative to the folder of the kubeconfig.
      user: {
        exec: { ...PLUGIN, command: "./plugin", env: [{ name: "EXTRA", value: "own" }], ...exec },
      },
    });
    const auth = await folder.load({}, createCommandRunner(systemClock) as never);
    const [own, info] = (await auth.authorization())!.replace("Bearer ", "").split(".");
    const { kind, apiVersion, spec } = JSON.parse(atob(info!));
    assertEquals([own, kind, apiVersion], ["own", "ExecCredential", PLUGIN.apiVersion]);
    return spec;
  };
  assertEquals(await asked({}), { interactive: false });
  assertEquals(await asked({ provideClusterInfo: true }), {
    cluster: {
      server: SERVER,
      "tls-server-name": "kubernetes",
      "certificate-authority-data": btoa(CA),
      config: { audience: "kube" },
    },
    interactive: false,
  });
});

Deno.test("a credential plugin is ended that prints endlessly", async () => {
  for (const command of ["exec yes", "exec yes >&2"]) {
    const exec = { ...PLUGIN, command: "sh", args: ["-c", command] };
    await using folder = await Folder.make({ user: { exec } });
    const auth = await folder.load({}, createCommandRunner(systemClock) as never);
    const reason = "it printed more than 1048576 characters";
    await assertRejects(() => auth.authorization(), KubeAuthError, reason);
  }
});
