"""What is compared: Open MPI's own components, and Towline's, as options and variables of mpirun."""

import pathlib
from dataclasses import dataclass, field
from typing import Dict, List

import jobs


@dataclass
class Side:
    name: str
    options: List[str]
    towline: bool = False
    variables: Dict[str, str] = field(default_factory=dict)


def stock(version, transport, name="stock"):
    """Open MPI's own components: shared memory, or tcp for all that is not shared memory. Its shared memory does not reach
    processes that were spawned: tcp connects them."""
    shared_memory = {"4.1": "vader", "5.0": "sm"}[version]
    components = f"{shared_memory},tcp,self" if transport == "sm" else "tcp,self"
    return Side(name, ["--mca", "pml", "ob1", "--mca", "btl", components])


def towline(component, version, transport, folder):
    """One of Towline's components, from the folder where it was built."""
    folder = pathlib.Path(folder or jobs.cache.parent / "openmpi" / version).resolve()
    file = folder / f"mca_{component}_towline.so"
    if not file.exists():
        raise jobs.Wrong(f"{file} does not exist: build Towline's components first, or name their folder by --components")
    # osc/rdma uses the BTL for all windows but those of MPI_Win_allocate_shared, which are osc/sm's.
    options = {
        "mtl": ["--mca", "pml", "cm", "--mca", "mtl", "towline"],
        "btl": ["--mca", "pml", "ob1", "--mca", "btl", "towline,self", "--mca", "osc", "rdma,sm"],
    }[component]
    system = jobs.inside(version, ["ompi_info", "--path", "pkglibdir", "--parsable"]).strip().rpartition(":")[2]
    variables = {"OMPI_MCA_mca_base_component_path": f"{folder}:{system}", "TOWLINE_TRANSPORTS": transport}
    return Side(component, options, True, variables)


def sides(components, version, transport, folder):
    """The sides that are compared, Open MPI's own first."""
    chosen = [stock(version, transport)]
    for component in components:
        if component == "stock":
            chosen.append(stock(version, transport, "stock again"))
        else:
            chosen.append(towline(component, version, transport, folder))
    return chosen
