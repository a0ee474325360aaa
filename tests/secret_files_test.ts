/**
 * A file that is named by mistake may be a key or a password: nothing that is in it is printed, in
 * whichever place it is named.
 */
import { assertEquals, assertNotEquals } from "@std/assert";
import { runInProcess } from "./support/drivers/command_line.ts";

const SECRET = "hunter2";

/** Foreign files that contain {@linkcode SECRET}. */
const FILES: Readonly<Record<string, string>> = {
  "a key": `-----BEGIN PRIVATE KEY-----\n${SECRET}/x+yz==\n-----END PRIVATE KEY-----\n`,
  "an encrypted key": "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n" +
    `DEK-Info: AES-128-CBC,${SECRET}\n\n${SECRET}\n-----END RSA PRIVATE KEY-----\n`,
  "a key and a certificate": `-----BEGIN PRIVATE KEY-----\n${SECRET}\n-----END PRIVATE KEY-----\n` +
    `-----BEGIN CERTIFICATE-----\n${SECRET}\n-----END CERTIFICATE-----\n`,
  "a token": SECRET,
  "two words": `${SECRET} ${SECRET}`,
  "a list of passwords": `${SECRET},admin,1\nroot,${SECRET},2\n`,
  "an htpasswd": `admin:$apr1$${SECRET}\nroot: ${SECRET}\n`,
  "a shadow": `root:$y$j9T$${SECRET}:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n`,
  "an environment": `TOKEN=${SECRET}\nPASSWORD="${SECRET}"\n`,
  "a list": `- ${SECRET}\n- ${SECRET}\n`,
  "a JSON list": `["${SECRET}"]`,
  "JSON that is cut": `{"password": "${SECRET}", "${SECRET}": `,
  "JSON that is a text": `"${SECRET}"`,
  "JSON with more behind": `{"password": "${SECRET}"} ${SECRET}`,
  "fields of others": `apiVersion: ${SECRET}/${SECRET}\nkind: ${SECRET}\nmode: {a: ${SECRET}}\n`,
  "a tag": `a: !${SECRET} b\n`,
  "an alias": `a: *${SECRET}\n`,
  "an alias in itself": `a: &${SECRET} [*${SECRET}]\n`,
  "a directive": `%${SECRET} ${SECRET}\n---\na\n`,
  "a block": `a: |${SECRET}\n  b\n`,
  "a quote without end": `a: "${SECRET}\n`,
  "a wrong escape": `a: "\\${SECRET}"\n`,
  "a reserved character": `a: @${SECRET}\nb: \`${SECRET}\n`,
  "keys twice": `? ${SECRET} ${SECRET}\n: 1\n? ${SECRET} ${SECRET}\n: 2\n`,
  "a collection as a key": `{a: ${SECRET}}: 1\n`,
  "a tab": `a:\n\t${SECRET}: 1\n`,
  "an indentation": `a: ${SECRET}\n  b: ${SECRET}\n`,
  "a number": `token: &a 1\n<<: ${SECRET}\n`,
};

/** The arguments that name the file; `MANIFESTS` stands for a folder with it. */
const ARGUMENTS: readonly (readonly string[])[] = [
  ["render", "--mode=userspace", "--config=FILE"],
  ["--config=FILE"],
  ["render", "--mode=userspace", "--manifests=FILE"],
  ["render", "--mode=userspace", "--manifests=FOLDER"],
  ["render", "--mode=userspace", "--kubeconfig=FILE"],
  ["explain", "10.0.0.1", "10.0.0.2:80", "--from=FILE"],
  ["diff", "--from=FILE"],
  ["render", "--from=FILE"],
];

async function printed(argv: readonly string[]): Promise<{ code: number; text: string }> {
  const { code, out, err } = await runInProcess(argv);
  return { code, text: out + err };
}

for (const argv of ARGUMENTS) {
  Deno.test(`kube-relay ${argv.join(" ")} prints nothing of a file that is something else`, async (t) => {
    const folder = await Deno.makeTempDir();
    try {
      for (const [name, content] of Object.entries(FILES)) {
        await t.step(name, async () => {
          const file = `${folder}/given.yaml`;
          await Deno.writeTextFile(file, content);
          const places = { FILE: file, FOLDER: folder };
          const { code, text } = await printed(
            argv.map((arg) => arg.replace(/FILE$|FOLDER$/, (at) => places[at as "FILE"])),
          );
          assertEquals(text.includes(SECRET), false, text);
          // Kinds that are not read are skipped in a manifest.
          if (name !== "fields of others") assertNotEquals(code, 0);
        });
      }
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}
