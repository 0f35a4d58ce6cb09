// Asks snarkjs whether proofs verify. Arguments: triples of paths, verification_key.json public.json proof.json.
// Prints "ok" or "no" for each triple, one a line, in order.
import { readFileSync } from "node:fs";
import { groth16 } from "snarkjs";

const read = (path) => JSON.parse(readFileSync(path, "utf8"));
const paths = process.argv.slice(2);
for (let i = 0; i + 2 < paths.length; i += 3) {
  const [key, inputs, proof] = paths.slice(i, i + 3).map(read);
  console.log((await groth16.verify(key, inputs, proof)) ? "ok" : "no");
}
process.exit(0); // snarkjs leaves worker threads behind
