import {
  assert,
  assertEquals,
  assertMatch,
  assertRejects,
  assertStrictEquals,
  assertStringIncludes,
} from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { replaceFile } from "../../tests/support/builders/kubeconfig_file.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { createTestCertificateAuthority } from "../../tests/support/builders/test_certificates.ts";
import { createCommandRunner } from "../os/command_runner.ts";
import { systemClock } from "../os/clock.ts";
import { KubeAuthError } from "./kube_identity.ts";
import { loadKubeAuth } from "./kubeconfig.ts";

const CA = "-----BEGIN CERTIFICATE-----\nca\n-----END CERTIFICATE-----\n";
const CERT = "-----BEGIN CERTIFICATE-----\nclient\n-----END CERTIFICATE-----\n";
const KEY = "-----BEGIN EC PRIVATE KEY-----\nkey\n-----END EC PRIVATE KEY-----\n";

interface Kubeconfig {
  readonly cluster?: Record<string, unknown>;
  readonly user?: Record<string, unknown>;
  readonly context?: Record<string, unknown>;
  readonly currentContext?: string;
}

const PLUGIN = { apiVersion: "client.authentication.k8s.io/v1", command: "kubelogin" };

function printed(token: string) {
  return { stdout: JSON.stringify({ kind: "ExecCredential", status: { token } }) };
}

/** A folder with files, and a kubeconfig among them. */
class Folder implements AsyncDisposable {
  readonly logger = new MemoryLogger();
  readonly commands = new FakeCommandRunner();
  readonly clock = new FakeClock();
  private constructor(readonly path: string) {}

  static async make(): Promise<Folder> {
    return new Folder(await Deno.makeTempDir({ prefix: "kube-relay-kubeconfig-" }));
  }

  get kubeconfig(): string {
    return `${this.path}/kubeconfig`;
  }

  async write(name: string, text: string): Promise<string> {
    await replaceFile(`${this.path}/${name}`, text);
    return `${this.path}/${name}`;
  }

  async writeKubeconfig({ cluster, user, context, currentContext }: Kubeconfig): Promise<void> {
    await this.write(
      "kubeconfig",
      JSON.stringify({
        clusters: [{ name: "k3s", cluster: { server: "https://192.0.2.1:6443/", ...cluster } }],
        users: [{ name: "proxy", user: user ?? {} }],
        contexts: [{ name: "main", context: { cluster: "k3s", user: "proxy", ...context } }],
        "current-context": currentContext ?? "main",
      }),
    );
  }

  load(options: Partial<Parameters<typeof loadKubeAuth>[1]> = {}) {
    const { clock, logger, commands } = this;
    return loadKubeAuth({ clock, logger, commands }, {
      kubeconfig: this.kubeconfig,
      env: () => undefined,
      serviceAccountFolder: `${this.path}/no-account`,
      ...options,
    });
  }

  async fails(options?: Partial<Parameters<typeof loadKubeAuth>[1]>): Promise<string> {
    return (await assertRejects(() => this.load(options), KubeAuthError)).message;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.path, { recursive: true });
  }
}

Deno.test("loadKubeAuth() reads data in the kubeconfig", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({
    cluster: { "certificate-authority-data": btoa(CA), "tls-server-name": "kubernetes" },
    user: { "client-certificate-data": btoa(CERT), "client-key-data": btoa(KEY) },
  });
  const auth = await folder.load();
  assertEquals(await auth.tls(), {
    ca: CA,
    cert: CERT,
    key: KEY,
    serverName: "kubernetes",
    insecure: false,
  });
  assertEquals(await auth.authorization(), undefined);
  assertEquals(auth.describe(), {
    server: "https://192.0.2.1:6443",
    source: "kubeconfig",
    file: folder.kubeconfig,
    method: "client certificate",
  });
  assertEquals(folder.logger.lines, []);
});

Deno.test("loadKubeAuth() reads files next to the kubeconfig, by relative paths", async () => {
  await using folder = await Folder.make();
  for (
    const [name, text] of [["ca.crt", CA], ["p.crt", CERT], ["p.key", KEY], ["token", "abc\n"]]
  ) {
    await folder.write(name!, text!);
  }
  await folder.writeKubeconfig({
    cluster: { "certificate-authority": "ca.crt" },
    user: { "client-certificate": "p.crt", "client-key": "./p.key", tokenFile: "token" },
  });
  const auth = await folder.load();
  assertEquals(await auth.tls(), { ca: CA, cert: CERT, key: KEY, insecure: false });
  assertEquals(await auth.authorization(), "Bearer abc");
  assertEquals(auth.describe().method, "token file");
});

Deno.test("loadKubeAuth() prefers data to a file, as kubectl does", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({
    cluster: { "certificate-authority-data": btoa(CA), "certificate-authority": "missing.crt" },
  });
  assertEquals((await (await folder.load()).tls()).ca, CA);
});

for (
  const [name, user, authorization, method] of [
    ["a token", { token: "abc" }, "Bearer abc", "token"],
    [
      "user name and password",
      { username: "me", password: "pä" },
      "Basic bWU6cMOk",
      "user name and password",
    ],
    ["nothing", {}, undefined, "none"],
  ] as const
) {
  Deno.test(`loadKubeAuth() authenticates with ${name}`, async () => {
    await using folder = await Folder.make();
    await folder.writeKubeconfig({ user });
    const auth = await folder.load();
    assertEquals([await auth.authorization(), auth.describe().method], [authorization, method]);
  });
}

Deno.test("loadKubeAuth() uses the server of --master in place of the kubeconfig's", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({ user: { token: "abc" } });
  const auth = await folder.load({ master: "https://192.0.2.2:6443" });
  assertEquals([auth.server, await auth.authorization()], ["https://192.0.2.2:6443", "Bearer abc"]);
});

Deno.test("loadKubeAuth() treats HOST:PORT as https if there is a certificate", async () => {
  await using folder = await Folder.make();
  const server = "192.0.2.2:6443";
  await folder.writeKubeconfig({ cluster: { server, "insecure-skip-tls-verify": true } });
  assertEquals((await folder.load()).server, "https://192.0.2.2:6443");
  await folder.writeKubeconfig({ cluster: { server } });
  assertEquals((await folder.load()).server, "http://192.0.2.2:6443");
  assertEquals((await folder.load({ master: "127.0.0.1:8001" })).server, "http://127.0.0.1:8001");
});

Deno.test("loadKubeAuth() sends no credentials to an http:// server", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({ user: { token: "abc" } });
  const auth = await folder.load({ master: "http://127.0.0.1:8001" });
  assertEquals([await auth.authorization(), auth.describe().method], [undefined, "none (http)"]);
});

Deno.test("loadKubeAuth() finds the kubeconfig of the variable KUBECONFIG", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({});
  const { clock, logger } = folder;
  const env = (name: string) => name === "KUBECONFIG" ? folder.kubeconfig : undefined;
  assertEquals((await loadKubeAuth({ clock, logger }, { env })).describe().file, folder.kubeconfig);
});

Deno.test("loadKubeAuth() uses the service account of a pod", async () => {
  await using folder = await Folder.make();
  await folder.write("token", "abc");
  await folder.write("ca.crt", CA);
  await Deno.chmod(`${folder.path}/token`, 0o644);
  const { clock, logger, path: serviceAccountFolder } = folder;
  const env = (name: string) =>
    name.endsWith("HOST") ? "10.96.0.1" : name.endsWith("PORT") ? "443" : "";
  const auth = await loadKubeAuth({ clock, logger }, { env, serviceAccountFolder });
  assertEquals(await auth.authorization(), "Bearer abc");
  assertEquals(await auth.tls(), { ca: CA, insecure: false });
  // The kubelet gives those files their mode; no user can change them.
  assertEquals(logger.lines, []);
});

Deno.test("loadKubeAuth() uses the account with an IPv6 address, or with that of --master", async () => {
  await using folder = await Folder.make();
  await folder.write("token", "abc");
  await folder.write("ca.crt", CA);
  const { clock, logger, path: serviceAccountFolder } = folder;
  const load = async (host: string, master?: string) => {
    const env = (name: string) =>
      name.endsWith("HOST") ? host : name.endsWith("PORT") && host !== "" ? "6443" : undefined;
    const options = { env, serviceAccountFolder, ...(master !== undefined && { master }) };
    const { server, source } = (await loadKubeAuth({ clock, logger }, options)).describe();
    return [server, source];
  };
  assertEquals(await load("fd00::1"), ["https://[fd00::1]:6443", "in-cluster account"]);
  const master = "https://192.0.2.1:6443";
  assertEquals(await load("", master), [master, "in-cluster account"]);
  await assertRejects(() => load(""), KubeAuthError, "Cannot find the API server");
  await Deno.remove(`${serviceAccountFolder}/token`);
  await assertRejects(() => load("10.96.0.1"), KubeAuthError, "Cannot find the API server");
});

Deno.test("loadKubeAuth() takes --master alone, without an identity", async () => {
  await using folder = await Folder.make();
  const { clock, logger, path: serviceAccountFolder } = folder;
  const auth = await loadKubeAuth({ clock, logger }, {
    env: () => undefined,
    master: "http://127.0.0.1:8080",
    serviceAccountFolder,
  });
  assertEquals([auth.describe().source, auth.server], ["--master alone", "http://127.0.0.1:8080"]);
});

Deno.test("loadKubeAuth() runs a credential plugin", async () => {
  await using folder = await Folder.make();
  folder.commands.on("kubelogin get-token", printed("from plugin"));
  await folder.writeKubeconfig({ user: { exec: { ...PLUGIN, args: ["get-token"] } } });
  const auth = await folder.load();
  assertEquals(await auth.authorization(), "Bearer from plugin");
  assertEquals(auth.describe().method, "credential plugin 'kubelogin'");
});

Deno.test("loadKubeAuth() starts with a credential plugin that fails now, and asks it again later", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({ user: { exec: PLUGIN } });
  folder.commands.on("kubelogin", { code: 1, stderr: "no network" });
  const auth = await folder.load();
  await assertRejects(() => auth.authorization(), KubeAuthError, "no network");
  folder.commands.on("kubelogin", printed("later"));
  await folder.clock.advance(1000);
  assertEquals(await auth.authorization(), "Bearer later");
});

Deno.test("loadKubeAuth() does not run a plugin for each refusal of its credentials", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({ user: { exec: PLUGIN } });
  folder.commands.on("kubelogin", printed("refused"));
  const auth = await folder.load();
  for (let second = 0; second < 20; second++) {
    for (let request = 0; request < 5; request++) {
      await auth.authorization();
      await auth.refresh();
    }
    await folder.clock.advance(1000);
  }
  // After 0, 1, 3, 7 and 15 s.
  assertEquals(folder.commands.calls.length, 5);
  // Another configuration is another plugin.
  await folder.writeKubeconfig({ user: { exec: { ...PLUGIN, args: ["other"] } } });
  await auth.refresh();
  await auth.authorization();
  assertEquals(folder.commands.calls.at(-1)?.line, "kubelogin other");
});

Deno.test("loadKubeAuth() gives a plugin the cluster if it asks for it", async () => {
  await using folder = await Folder.make();
  const program = await folder.write(
    "plugin",
    `#!/bin/sh
printf '{"status":{"token":"%s"}}' "$(printf %s "$KUBERNETES_EXEC_INFO" | base64 -w0)"
`,
  );
  await Deno.chmod(program, 0o700);
  await folder.write("ca.crt", CA);
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
      user: { exec: { ...PLUGIN, command: "./plugin", ...exec } },
    });
    const { clock, logger, kubeconfig } = folder;
    const commands = createCommandRunner(systemClock);
    const auth = await loadKubeAuth({ clock, logger, commands }, {
      kubeconfig,
      env: () => undefined,
    });
    return JSON.parse(atob((await auth.authorization())!.slice("Bearer ".length))).spec;
  };
  assertEquals(await asked({}), { interactive: false });
  assertEquals(await asked({ provideClusterInfo: true }), {
    cluster: {
      server: "https://192.0.2.1:6443",
      "tls-server-name": "kubernetes",
      "certificate-authority-data": btoa(CA),
      config: { audience: "kube" },
    },
    interactive: false,
  });
});

Deno.test("loadKubeAuth() keeps an identity whole when the kubeconfig names another server", async () => {
  await using folder = await Folder.make();
  const write = async (server: string, credentials: string) => {
    const ca = CA.replace("ca", credentials);
    // The files of both clusters have the same names.
    for (const [name, text] of [["ca.crt", ca], ["token", credentials]] as const) {
      await folder.write(name, text);
    }
    await folder.writeKubeconfig({
      cluster: { server, "certificate-authority": "ca.crt" },
      user: { tokenFile: "token" },
    });
    return { ca, token: `Bearer ${credentials}` };
  };
  const [here, there] = ["https://192.0.2.1:6443", "https://192.0.2.2:6443"];
  const first = await write(here, "first");
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
    `was '${here}'; restart kube-relay to connect to it`,
  ]);
  await shows(await write(here, "third"));
});

Deno.test("loadKubeAuth() takes a changed kubeconfig whole or not at all", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({ user: { token: "one" } });
  const auth = await folder.load();
  const before = await auth.tls();
  await folder.writeKubeconfig({
    cluster: { "certificate-authority": "later.crt" },
    user: { token: "two" },
  });
  await auth.refresh();
  assertEquals([await auth.tls(), await auth.authorization()], [before, "Bearer one"]);
  await folder.write("later.crt", CA);
  assertEquals([(await auth.tls()).ca, await auth.authorization()], [CA, "Bearer two"]);
});

Deno.test("loadKubeAuth() reads a kubeconfig again after a refusal, even if it looks the same", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({ user: { token: "one" } });
  const auth = await folder.load();
  const { mtime } = await Deno.stat(folder.kubeconfig);
  const text = await Deno.readTextFile(folder.kubeconfig);
  await Deno.writeTextFile(folder.kubeconfig, text.replace("one", "two"));
  await Deno.utime(folder.kubeconfig, mtime!, mtime!);
  assertEquals(await auth.authorization(), "Bearer one");
  await auth.refresh();
  assertEquals(await auth.authorization(), "Bearer two");
});

Deno.test("loadKubeAuth() names both files of a certificate and a key that do not belong together", async () => {
  await using folder = await Folder.make();
  const authority = await createTestCertificateAuthority();
  const one = await authority.issue({ commonName: "one" });
  const two = await authority.issue({ commonName: "two" });
  await folder.write("p.crt", one.cert);
  await folder.write("p.key", two.key);
  const user = { "client-certificate": "p.crt", "client-key": "p.key" };
  await folder.writeKubeconfig({ user });
  assertEquals(
    await folder.fails(),
    `Cannot use the client certificate: the key of '${folder.path}/p.key' does not belong to the ` +
      `certificate of '${folder.path}/p.crt'; replace one of the two`,
  );
  // A rotation replaces one file after the other.
  await folder.write("p.key", one.key);
  const auth = await folder.load();
  await folder.write("p.crt", two.cert);
  assertEquals((await auth.tls()).cert, one.cert);
  await folder.write("p.key", two.key);
  assertEquals((await auth.tls()).cert, two.cert);
});

Deno.test("loadKubeAuth() gives the same material until a file changes, and keeps it while a new one can't be read", async () => {
  await using folder = await Folder.make();
  const pem = (text: string) => CA.replace("ca", text);
  await folder.write("ca.crt", pem("one"));
  await folder.writeKubeconfig({ cluster: { "certificate-authority": "ca.crt" } });
  const auth = await folder.load();
  const first = await auth.tls();
  // Written again with the same content: no new connection for that.
  await folder.write("ca.crt", pem("one"));
  assertStrictEquals(await auth.tls(), first);
  for (
    const break_ of [
      () => folder.write("ca.crt", "half of a"),
      () => Deno.remove(`${folder.path}/ca.crt`),
    ]
  ) {
    await break_();
    for (let time = 0; time < 2; time++) assertStrictEquals(await auth.tls(), first);
  }
  assertEquals(folder.logger.lines.map(({ level }) => level), ["warn", "warn"]);
  await folder.write("ca.crt", pem("two"));
  assertEquals((await auth.tls()).ca, pem("two"));
});

Deno.test("loadKubeAuth() reads the token file for each request, and keeps the last good one", async () => {
  await using folder = await Folder.make();
  await folder.write("token", "one\n");
  await folder.writeKubeconfig({ user: { tokenFile: "token" } });
  const auth = await folder.load();
  assertEquals(await auth.authorization(), "Bearer one");
  await folder.write("token", "two");
  assertEquals(await auth.authorization(), "Bearer two");
  await Deno.remove(`${folder.path}/token`);
  assertEquals(await auth.authorization(), "Bearer two");
  assertEquals(folder.logger.lines.length, 1);
});

Deno.test("loadKubeAuth() uses the certificate of a plugin, the same material while it stays", async () => {
  await using folder = await Folder.make();
  const give = (clientCertificateData: string) =>
    folder.commands.on("kubelogin", {
      stdout: JSON.stringify({ status: { clientCertificateData, clientKeyData: "key" } }),
    });
  give("one");
  await folder.writeKubeconfig({ user: { exec: PLUGIN } });
  const auth = await folder.load();
  const first = await auth.tls();
  assertEquals([first.cert, first.key], ["one", "key"]);
  assertStrictEquals(await auth.tls(), first);
  give("two");
  await folder.clock.advance(10_000);
  await auth.refresh();
  assertEquals((await auth.tls()).cert, "two");
  assertEquals(await auth.authorization(), undefined);
});

const BROKEN: readonly (readonly [string, Kubeconfig, readonly string[]])[] = [
  ["an unknown context", { currentContext: "prod" }, ["current-context is 'prod'", "'main'"]],
  ["an unknown cluster", { context: { cluster: "x" } }, [
    "contexts['main'].context.cluster is 'x'",
  ]],
  ["an unknown user", { context: { user: "x" } }, ["contexts['main'].context.user is 'x'"]],
  ["a cluster without server", { cluster: { server: "" } }, [
    "clusters[0].cluster.server is missing",
  ]],
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
  ["an endless token file", { user: { tokenFile: "/dev/zero" } }, [
    "it has more than 1048576 bytes",
  ]],
  ["a missing token file", { user: { tokenFile: "no" } }, ["user.tokenFile of", "/no'"]],
  ["impersonation", { user: { as: "admin" } }, ["users['proxy'].user.as is not supported"]],
  [
    "an auth-provider",
    { user: { "auth-provider": { name: "oidc" } } },
    ["user.auth-provider is not supported", "exec"],
  ],
  ["a proxy", { cluster: { "proxy-url": "socks5://x" } }, ["cluster.proxy-url is not supported"]],
  [
    "a plugin without a command",
    { user: { exec: { apiVersion: "v1" } } },
    ["users['proxy'].user.exec of", "'command' has to be a string"],
  ],
];

for (const [name, kubeconfig, parts] of BROKEN) {
  Deno.test(`loadKubeAuth() refuses ${name}, and names file, field and cure`, async () => {
    await using folder = await Folder.make();
    await folder.writeKubeconfig(kubeconfig);
    const message = await folder.fails();
    for (const part of [folder.kubeconfig, ...parts]) assertStringIncludes(message, part);
  });
}

Deno.test("loadKubeAuth() refuses a token file with more than a token", async () => {
  await using folder = await Folder.make();
  for (const text of ["", "two words", "token\nX-Header: evil"]) {
    await folder.write("token", text);
    await folder.writeKubeconfig({ user: { tokenFile: "token" } });
    assertStringIncludes(await folder.fails(), "has to hold one token and nothing else");
  }
});

Deno.test("loadKubeAuth() names the line of a YAML error, and shows nothing of it", async () => {
  await using folder = await Folder.make();
  await folder.write("kubeconfig", "users:\n- user:\n    token: [s3cret\n  x: y\n");
  const { message, cause } = await assertRejects(() => folder.load(), KubeAuthError);
  assertStringIncludes(message, `Cannot use kubeconfig '${folder.kubeconfig}':`);
  assertMatch(message, /line \d/);
  assert(!message.includes("s3cret"), message);
  assertEquals(cause, undefined);
});

Deno.test("loadKubeAuth() names the kubeconfig that it can't read", async () => {
  await using folder = await Folder.make();
  const message = await folder.fails({ kubeconfig: `${folder.path}/none` });
  assertStringIncludes(message, "Cannot read kubeconfig");
  assertStringIncludes(message, `${folder.path}/none`);
});

Deno.test("loadKubeAuth() names a field of a wrong type, and not its value", async () => {
  await using folder = await Folder.make();
  await folder.write("kubeconfig", "users:\n- user:\n    token: 12345\n");
  const message = await folder.fails({});
  assertStringIncludes(message, "users[0].user.token has to be text");
  assert(!message.includes("12345"), message);
});

Deno.test("loadKubeAuth() does not read an endless file", async () => {
  await using folder = await Folder.make();
  const message = await folder.fails({ kubeconfig: "/dev/zero" });
  assertStringIncludes(message, "Cannot read kubeconfig '/dev/zero': it has more than");
});

Deno.test("loadKubeAuth() refuses a --master that is no URL", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({});
  assertStringIncludes(
    await folder.fails({ master: "ftp://192.0.2.1" }),
    "Cannot use --master: 'ftp://192.0.2.1'",
  );
});

Deno.test("loadKubeAuth() names the flags to set if there is no configuration at all", async () => {
  await using folder = await Folder.make();
  const { clock, logger, path: serviceAccountFolder } = folder;
  const { message } = await assertRejects(
    () => loadKubeAuth({ clock, logger }, { env: () => undefined, serviceAccountFolder }),
    KubeAuthError,
  );
  for (const part of ["--kubeconfig", "--manifests", "k3s"]) assertStringIncludes(message, part);
});

Deno.test("loadKubeAuth() warns of files that other users may read or write", async () => {
  await using folder = await Folder.make();
  await folder.write("p.crt", CERT);
  await folder.write("p.key", KEY);
  await folder.write("token", "abc");
  await folder.writeKubeconfig({
    user: { "client-certificate": "p.crt", "client-key": "p.key", tokenFile: "token" },
  });
  for (
    const [name, mode] of [["kubeconfig", 0o644], ["p.crt", 0o666], ["p.key", 0o606], [
      "token",
      0o600,
    ]]
  ) {
    await Deno.chmod(`${folder.path}/${name}`, Number(mode));
  }
  await folder.load();
  assertEquals(
    folder.logger.lines.map(({ level, fields }) => [level, fields.file, fields.othersMay]),
    [
      ["warn", folder.kubeconfig, "read"],
      ["warn", `${folder.path}/p.key`, "read and write"],
    ],
  );
});

Deno.test("loadKubeAuth() warns of a certificate that is not checked", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({ cluster: { "insecure-skip-tls-verify": true } });
  const auth = await folder.load();
  assertEquals(await auth.tls(), { insecure: true });
  assertEquals(folder.logger.lines.length, 1);
  assertEquals(folder.logger.lines[0]?.fields.field, "insecure-skip-tls-verify");
});

Deno.test("loadKubeAuth() puts no secret into its description", async () => {
  await using folder = await Folder.make();
  await folder.writeKubeconfig({
    cluster: { "insecure-skip-tls-verify": true },
    user: { token: "s3cret", "client-certificate-data": btoa(CERT), "client-key-data": btoa(KEY) },
  });
  const auth = await folder.load();
  const said = JSON.stringify([auth.describe(), folder.logger.lines]);
  assert(!said.includes("s3cret") && !said.includes(btoa(KEY)) && !said.includes("BEGIN"));
});

Deno.test("loadKubeAuth() reports once that the kubeconfig does not exist", async () => {
  await using folder = await Folder.make();
  const { message, cause } = await assertRejects(() => folder.load(), KubeAuthError);
  const reason =
    "there is no such file; --kubeconfig or clientConnection.kubeconfig has to name one";
  assertEquals(message, `Cannot read kubeconfig '${folder.kubeconfig}': ${reason}`);
  assertEquals(cause, undefined);
});
