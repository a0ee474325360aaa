import { assertEquals } from "@std/assert";
import { inClusterIdentity } from "./in_cluster.ts";

const ENVIRONMENT: Readonly<Record<string, string>> = {
  KUBERNETES_SERVICE_HOST: "10.96.0.1",
  KUBERNETES_SERVICE_PORT: "443",
};

async function identity(
  more: { env?: Record<string, string>; master?: string; token?: boolean },
) {
  const folder = await Deno.makeTempDir();
  try {
    if (more.token ?? true) await Deno.writeTextFile(`${folder}/token`, "x");
    const found = await inClusterIdentity({
      env: (name) => (more.env ?? ENVIRONMENT)[name],
      master: more.master,
      serviceAccountFolder: folder,
    });
    return found && { ...found, folder };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("inClusterIdentity() trusts the account's CA and uses its token file", async () => {
  const found = await identity({});
  assertEquals(found?.server, "https://10.96.0.1:443");
  assertEquals(found?.tokenFile?.file, `${found?.folder}/token`);
  assertEquals(found?.ca, {
    field: "the service account's ca.crt",
    file: `${found?.folder}/ca.crt`,
  });
  assertEquals(found?.insecure, false);
});

Deno.test("inClusterIdentity() puts an IPv6 address into brackets", async () => {
  const env = { KUBERNETES_SERVICE_HOST: "fd00::1", KUBERNETES_SERVICE_PORT: "6443" };
  assertEquals((await identity({ env }))?.server, "https://[fd00::1]:6443");
});

Deno.test("inClusterIdentity() uses the account with the address of --master", async () => {
  const found = await identity({ env: {}, master: "https://192.0.2.1:6443" });
  assertEquals([found?.server, found?.source], ["https://192.0.2.1:6443", "in-cluster account"]);
});

Deno.test("inClusterIdentity() finds nothing without a token or without an address", async () => {
  assertEquals(await identity({ token: false }), undefined);
  assertEquals(await identity({ env: {} }), undefined);
  assertEquals(await identity({ env: { KUBERNETES_SERVICE_HOST: "10.96.0.1" } }), undefined);
});
